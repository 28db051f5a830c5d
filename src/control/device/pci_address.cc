#include "device/pci_address.h"

#include <cstdint>

namespace fulldeck::device {
namespace {

// Reads the hex digits at the front of `text`, at most `max_digits` of them, and moves past them.
std::optional<std::uint32_t> TakeHex(std::string_view& text, int max_digits) {
  std::uint32_t value = 0;
  int digits = 0;
  while (!text.empty()) {
    const char c = text.front();
    std::uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint32_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<std::uint32_t>(c - 'A') + 10;
    } else {
      break;
    }
    if (++digits > max_digits) return std::nullopt;
    value = value * 16 + digit;
    text.remove_prefix(1);
  }
  if (digits == 0) return std::nullopt;
  return value;
}

bool TakeChar(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

void AppendHex(std::string& out, std::uint32_t value, int min_digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  int digits = min_digits;
  while (digits < 8 && (value >> (4 * digits)) != 0) ++digits;
  for (int i = digits - 1; i >= 0; --i) out.push_back(kDigits[(value >> (4 * i)) & 0xf]);
}

}  // namespace

std::optional<std::string> NormalPciAddress(std::string_view text) {
  std::uint32_t domain = 0;
  std::optional<std::uint32_t> bus = TakeHex(text, 8);
  if (!bus || !TakeChar(text, ':')) return std::nullopt;
  std::optional<std::uint32_t> device = TakeHex(text, 2);
  if (!device) return std::nullopt;
  if (TakeChar(text, ':')) {
    domain = *bus;
    bus = device;
    device = TakeHex(text, 2);
  }
  if (!device || !TakeChar(text, '.')) return std::nullopt;
  const std::optional<std::uint32_t> function = TakeHex(text, 1);
  if (!function || !text.empty()) return std::nullopt;
  if (*bus > 0xff || *device > 0x1f || *function > 7) return std::nullopt;

  std::string address;
  AppendHex(address, domain, 4);
  address.push_back(':');
  AppendHex(address, *bus, 2);
  address.push_back(':');
  AppendHex(address, *device, 2);
  address.push_back('.');
  AppendHex(address, *function, 1);
  return address;
}

}  // namespace fulldeck::device
