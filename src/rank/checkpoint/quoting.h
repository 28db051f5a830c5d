// Names from outside in messages and in JSON.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"
#include "base/utf8.h"

namespace fulldeck::checkpoint {

// "name", fit for a terminal, the first 300 bytes of it.
inline std::string Quoted(std::string_view name) {
  std::string quoted;
  quoted += '"';
  quoted += base::Printable(name.substr(0, 300));
  quoted += '"';
  return quoted;
}

// What JSON can hold as a text.
inline bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const base::CodePoint first = base::FirstCodePoint(text);
    if (!first.valid) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

}  // namespace fulldeck::checkpoint
