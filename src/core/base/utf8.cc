#include "base/utf8.h"

namespace fulldeck::base {

CodePoint FirstCodePoint(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  std::size_t bytes = 0;
  std::uint32_t value = 0;
  std::uint32_t smallest = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    bytes = 2, value = lead & 0x1f, smallest = 0x80;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    bytes = 3, value = lead & 0x0f, smallest = 0x800;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    bytes = 4, value = lead & 0x07, smallest = 0x10000;
  }
  if (bytes == 0 || text.size() < bytes) return {};
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < smallest || value > 0x10ffff || surrogate) return {};
  return {value, bytes, true};
}

bool IsPrintable(const CodePoint& character) {
  if (!character.valid) return false;
  const std::uint32_t v = character.value;
  const bool control = v < 0x20 || (v >= 0x7f && v <= 0x9f);
  const bool invisible = v == 0xad || v == 0x61c || (v >= 0x200b && v <= 0x200f) || (v >= 0x2028 && v <= 0x202e) ||
                         (v >= 0x2060 && v <= 0x206f) || v == 0xfeff || (v >= 0xfff0 && v <= 0xffff) || v >= 0xe0000;
  return !control && !invisible;
}

std::size_t ColumnsOf(const CodePoint& character) {
  const std::uint32_t code = character.value;
  if (code >= 0x300 && code <= 0x36f) return 0;
  const bool wide = (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
                    (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) ||
                    (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) ||
                    (code >= 0x1f300 && code <= 0x1faff) || (code >= 0x20000 && code <= 0x3fffd);
  return wide ? 2 : 1;
}

}  // namespace fulldeck::base
