#include "runtime/data_parallel/nonfinite.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace fulldeck::runtime {
namespace {

// A value is non-finite if all its exponent bits are set. Adding the lowest exponent bit to the masked exponent then
// carries out of it. Or-ing the carries of a block keeps the loop free of branches, so that compilers vectorize it.
template <typename Bits, Bits kExponent>
std::optional<std::size_t> First(const void* data, std::size_t count) {
  constexpr std::size_t kBlock = 16 * 1024 / sizeof(Bits);
  constexpr Bits kLowest = kExponent & (~kExponent + 1);
  constexpr Bits kCarry = static_cast<Bits>(kExponent + kLowest);
  const auto* const bytes = static_cast<const unsigned char*>(data);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    Bits carries = 0;
    for (std::size_t i = 0; i < length; ++i) {
      Bits bits;  // NOLINT(cppcoreguidelines-init-variables)
      std::memcpy(&bits, bytes + (begin + i) * sizeof(Bits), sizeof(Bits));
      carries |= static_cast<Bits>((bits & kExponent) + kLowest);
    }
    if ((carries & kCarry) == 0) continue;
    for (std::size_t i = 0; i < length; ++i) {
      Bits bits;  // NOLINT(cppcoreguidelines-init-variables)
      std::memcpy(&bits, bytes + (begin + i) * sizeof(Bits), sizeof(Bits));
      if ((bits & kExponent) == kExponent) return begin + i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> FirstNonfinite(const void* data, c10::ScalarType type, std::size_t count) {
  switch (type) {
    case c10::ScalarType::Double:
      return First<std::uint64_t, 0x7ff0000000000000U>(data, count);
    case c10::ScalarType::Float:
      return First<std::uint32_t, 0x7f800000U>(data, count);
    case c10::ScalarType::BFloat16:
      return First<std::uint16_t, 0x7f80U>(data, count);
    case c10::ScalarType::Half:
      return First<std::uint16_t, 0x7c00U>(data, count);
    default:
      return std::nullopt;
  }
}

bool CanFindNonfinite(c10::ScalarType type) {
  return type == c10::ScalarType::Double || type == c10::ScalarType::Float || type == c10::ScalarType::BFloat16 ||
         type == c10::ScalarType::Half;
}

}  // namespace fulldeck::runtime
