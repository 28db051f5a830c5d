#include "bench/element.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "fulldeck/collectives.h"

namespace fulldeck::bench {
namespace {

constexpr std::uint64_t kWraps = std::numeric_limits<std::uint64_t>::max();

constexpr Element kElements[] = {
    {"float32", FULLDECK_FLOAT32, 4, std::uint64_t{1} << 24},
    {"float64", FULLDECK_FLOAT64, 8, std::uint64_t{1} << 53},
    {"float16", FULLDECK_FLOAT16, 2, 2048},
    {"bfloat16", FULLDECK_BFLOAT16, 2, 256},
    {"int8", FULLDECK_INT8, 1, kWraps},
    {"uint8", FULLDECK_UINT8, 1, kWraps},
    {"int16", FULLDECK_INT16, 2, kWraps},
    {"int32", FULLDECK_INT32, 4, kWraps},
    {"int64", FULLDECK_INT64, 8, kWraps},
};

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// For an integer that half precision represents exactly.
std::uint16_t HalfOf(std::uint64_t value) {
  if (value == 0) return 0;
  const int exponent = std::bit_width(value) - 1;
  const std::uint64_t fraction = exponent <= 10 ? value << (10 - exponent) : value >> (exponent - 10);
  return static_cast<std::uint16_t>((exponent + 15) << 10 | static_cast<int>(fraction & 0x3ff));
}

double FromHalf(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const double fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

}  // namespace

const Element* FindElement(std::string_view name) {
  for (const Element& element : kElements) {
    if (name == element.name) return &element;
  }
  return nullptr;
}

std::vector<std::string> ElementNames() {
  std::vector<std::string> names;
  for (const Element& element : kElements) names.emplace_back(element.name);
  return names;
}

void Encode(const Element& element, std::uint64_t value, std::byte* to) {
  FULLDECK_CHECK(value <= element.exact_to);
  switch (element.datatype) {
    case FULLDECK_FLOAT64:
      return Store(static_cast<double>(value), to);
    case FULLDECK_FLOAT32:
      return Store(static_cast<float>(value), to);
    case FULLDECK_FLOAT16:
      return Store(HalfOf(value), to);
    case FULLDECK_BFLOAT16:
      return Store(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16), to);
    default:
      break;
  }
  if (element.bytes == 1) return Store(static_cast<std::uint8_t>(value), to);
  if (element.bytes == 2) return Store(static_cast<std::uint16_t>(value), to);
  if (element.bytes == 4) return Store(static_cast<std::uint32_t>(value), to);
  Store(value, to);
}

double Decode(const Element& element, const std::byte* from) {
  switch (element.datatype) {
    case FULLDECK_FLOAT64:
      return Load<double>(from);
    case FULLDECK_FLOAT32:
      return Load<float>(from);
    case FULLDECK_FLOAT16:
      return FromHalf(Load<std::uint16_t>(from));
    case FULLDECK_BFLOAT16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(Load<std::uint16_t>(from)) << 16);
    case FULLDECK_UINT8:
      return Load<std::uint8_t>(from);
    default:
      break;
  }
  if (element.bytes == 1) return Load<std::int8_t>(from);
  if (element.bytes == 2) return Load<std::int16_t>(from);
  if (element.bytes == 4) return Load<std::int32_t>(from);
  return static_cast<double>(Load<std::int64_t>(from));
}

}  // namespace fulldeck::bench
