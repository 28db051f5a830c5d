#include "report/crc32c.h"

#include <array>

namespace fulldeck::report {
namespace {

constexpr std::array<std::uint32_t, 256> Table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ 0x82F63B78U : value >> 1;
    table[i] = value;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = Table();

}  // namespace

std::uint32_t Crc32c(std::string_view bytes) {
  std::uint32_t sum = 0xFFFFFFFFU;
  for (const char byte : bytes) sum = kTable[(sum ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (sum >> 8);
  return ~sum;
}

std::uint32_t MaskedCrc32c(std::string_view bytes) {
  const std::uint32_t sum = Crc32c(bytes);
  return ((sum >> 15) | (sum << 17)) + 0xA282EAD8U;
}

}  // namespace fulldeck::report
