// The exceptions of the C++ runtime. Exceptions are used only at the boundary to torch, which throws too: a handler for
// std::exception catches both.
#pragma once

#include <stdexcept>
#include <string>

// Exported from libfulldeck_runtime; all other symbols in it are hidden.
#define FULLDECK_RUNTIME_API __attribute__((visibility("default")))

namespace fulldeck {

// The message states what happened, to which thing, and what to do. It does not start with "fulldeck:".
class FULLDECK_RUNTIME_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text) {}
  ~Error() override;
};

// An operation that would make the training silently wrong was refused: a module on the wrong card, ranks that differ,
// a step in which nothing was reduced. Nothing has changed when it is thrown, unless the message states otherwise.
class FULLDECK_RUNTIME_API Refusal : public Error {
 public:
  using Error::Error;
  ~Refusal() override;
};

}  // namespace fulldeck
