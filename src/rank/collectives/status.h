// The result of a call: a code of the public header and, if it failed, a message for the user.
#pragma once

#include <string>
#include <utility>

#include "fulldeck/collectives.h"

namespace fulldeck::collectives {

class [[nodiscard]] Status {
 public:
  Status() = default;
  // `culprit`: the member of the group that caused it; -1: unknown.
  Status(int code, std::string text, int culprit = -1) : code_(code), text_(std::move(text)), culprit_(culprit) {}
  bool ok() const { return code_ == FULLDECK_OK; }
  int code() const { return code_; }
  const std::string& text() const { return text_; }
  int culprit() const { return culprit_; }

 private:
  int code_ = FULLDECK_OK;
  std::string text_;
  int culprit_ = -1;
};

}  // namespace fulldeck::collectives
