// Quotes untrusted names in messages and checks them for JSON.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"
#include "base/utf8.h"

namespace fulldeck::checkpoint {

// The first 300 bytes of "name", in quotes and safe to print.
inline std::string Quoted(std::string_view name) {
  std::string quoted;
  quoted += '"';
  quoted += base::Printable(name.substr(0, 300));
  quoted += '"';
  return quoted;
}

// Whether JSON can represent the string.
inline bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const base::CodePoint first = base::FirstCodePoint(text);
    if (!first.valid) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

}  // namespace fulldeck::checkpoint
