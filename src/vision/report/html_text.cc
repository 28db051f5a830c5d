#include "report/html_text.h"

#include "base/text.h"

namespace fulldeck::report {

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char letter : base::Printable(text)) {
    switch (letter) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += letter;
    }
  }
  return escaped;
}

std::string PngDataUri(std::string_view png) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string address = "data:image/png;base64,";
  address.reserve(address.size() + png.size() / 3 * 4 + 4);
  for (std::size_t i = 0; i < png.size(); i += 3) {
    unsigned bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < png.size() ? static_cast<unsigned char>(png[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) address += i + j <= png.size() ? kLetters[bits >> (18 - 6 * j) & 63] : '=';
  }
  return address;
}

}  // namespace fulldeck::report
