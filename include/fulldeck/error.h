// What the C++ runtime throws. Exceptions live at the edge to torch, which throws too: whoever catches std::exception
// gets both.
#pragma once

#include <stdexcept>
#include <string>

// What libfulldeck_runtime shows; everything else in it is hidden.
#define FULLDECK_RUNTIME_API __attribute__((visibility("default")))

namespace fulldeck {

// The text says what happened, to which thing, and what to do; it does not start with "fulldeck:".
class FULLDECK_RUNTIME_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text) {}
  ~Error() override;
};

// What would train wrongly is not done: a module on the wrong card, ranks that differ, a step in which nothing was
// reduced. Nothing was changed when it is thrown, unless the text says so.
class FULLDECK_RUNTIME_API Refusal : public Error {
 public:
  using Error::Error;
  ~Refusal() override;
};

}  // namespace fulldeck
