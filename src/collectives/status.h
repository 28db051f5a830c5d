// What a call came to: a number of the public header and, where it failed, the text for people.
#pragma once

#include <string>
#include <utility>

#include "fulldeck/collectives.h"

namespace fulldeck::collectives {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(int code, std::string text) : code_(code), text_(std::move(text)) {}
  bool ok() const { return code_ == FULLDECK_OK; }
  int code() const { return code_; }
  const std::string& text() const { return text_; }

 private:
  int code_ = FULLDECK_OK;
  std::string text_;
};

}  // namespace fulldeck::collectives
