// The expected result of a reduction, computed the slow way: one element after another, rank after rank, with 16-bit
// floats decoded by their definition instead of by bit tricks. Shares no code with the kernels, so that both cannot
// have the same error.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "collectives/kernels/datatype.h"

namespace fulldeck::testing {

using Bytes = std::vector<std::byte>;

// A 16-bit binary floating-point format: sign, exponent and fraction bits.
struct Format16 {
  int exponent_bits;
  int fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
inline constexpr Format16 kFloat16{5, 10};
inline constexpr Format16 kBfloat16{8, 7};

inline double ValueOf(std::uint16_t bits, Format16 format) {
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent = bits >> format.fraction_bits & ((1 << format.exponent_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const int unit = 1 - format.bias() - format.fraction_bits;
  if (exponent == 0) return sign * std::ldexp(fraction, unit);
  return sign * std::ldexp((1 << format.fraction_bits) + fraction, unit + exponent - 1);
}

// Rounds to nearest, ties to even. A NaN becomes the positive quiet NaN.
inline std::uint16_t Round16(double value, Format16 format) {
  const std::uint16_t infinity = static_cast<std::uint16_t>(((1 << format.exponent_bits) - 1) << format.fraction_bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1 << (format.fraction_bits - 1));
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (size == 0) return sign;
  if (std::isinf(size)) return static_cast<std::uint16_t>(sign | infinity);
  int exponent = 0;
  std::frexp(size, &exponent);  // size = m · 2^exponent, ½ ≤ m < 1
  const int lowest = 1 - format.bias() - format.fraction_bits;
  const int unit = std::max(exponent - 1 - format.fraction_bits, lowest);
  const auto units = static_cast<long>(std::nearbyint(std::ldexp(size, -unit)));
  // A carry out of the fraction increments the exponent.
  const long bits = (static_cast<long>(unit - lowest) << format.fraction_bits) + units;
  return static_cast<std::uint16_t>(sign | std::min<long>(bits, infinity));
}

// The type in which a stored type is reduced: float for 16-bit floats, 0 or 1 for bool, the type itself otherwise.
template <collectives::Datatype type>
struct Stored;
template <class Value>
struct Plain {
  using Accumulator = Value;
  static constexpr std::size_t kBytes = sizeof(Value);
  static Value Load(const std::byte* from) {
    Value value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static void Store(std::byte* to, Value value) { std::memcpy(to, &value, sizeof value); }
};
template <int exponent_bits, int fraction_bits>
struct Short {
  using Accumulator = float;
  static constexpr std::size_t kBytes = 2;
  static constexpr Format16 kFormat{exponent_bits, fraction_bits};
  static float Load(const std::byte* from) {
    return static_cast<float>(ValueOf(Plain<std::uint16_t>::Load(from), kFormat));
  }
  static void Store(std::byte* to, float value) { Plain<std::uint16_t>::Store(to, Round16(value, kFormat)); }
};
struct Truth {
  using Accumulator = bool;
  static constexpr std::size_t kBytes = 1;
  static bool Load(const std::byte* from) { return *from != std::byte{0}; }
  static void Store(std::byte* to, bool value) { *to = std::byte{value}; }
};

// Calls body with the Stored of this type.
template <class Body>
auto WithType(collectives::Datatype datatype, Body body) {
  using collectives::Datatype;
  switch (datatype) {
    case Datatype::kBool:
      return body(Truth());
    case Datatype::kInt8:
      return body(Plain<std::int8_t>());
    case Datatype::kUint8:
      return body(Plain<std::uint8_t>());
    case Datatype::kInt16:
      return body(Plain<std::int16_t>());
    case Datatype::kUint16:
      return body(Plain<std::uint16_t>());
    case Datatype::kInt32:
      return body(Plain<std::int32_t>());
    case Datatype::kUint32:
      return body(Plain<std::uint32_t>());
    case Datatype::kInt64:
      return body(Plain<std::int64_t>());
    case Datatype::kUint64:
      return body(Plain<std::uint64_t>());
    case Datatype::kFloat16:
      return body(Short<kFloat16.exponent_bits, kFloat16.fraction_bits>());
    case Datatype::kBfloat16:
      return body(Short<kBfloat16.exponent_bits, kBfloat16.fraction_bits>());
    case Datatype::kFloat32:
      return body(Plain<float>());
    case Datatype::kFloat64:
      return body(Plain<double>());
  }
  std::abort();
}

// One step: `left` is the result of the earlier ranks.
template <class Value>
Value Combine(Value left, Value right, collectives::Reduction reduction) {
  using collectives::Reduction;
  if constexpr (std::is_same_v<Value, bool>) {
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kMax:
      case Reduction::kOr:
        return left || right;
      case Reduction::kProd:
      case Reduction::kMin:
      case Reduction::kAnd:
        return left && right;
      case Reduction::kXor:
        return left != right;
      default:
        std::abort();
    }
  } else {
    if constexpr (std::is_integral_v<Value>) {
      // In unsigned 64 bits: whatever wraps around there, the low bits are correct.
      const auto l = static_cast<std::uint64_t>(left);   // NOLINT(bugprone-signed-char-misuse)
      const auto r = static_cast<std::uint64_t>(right);  // NOLINT(bugprone-signed-char-misuse)
      switch (reduction) {
        case Reduction::kSum:
        case Reduction::kAvg:
          return static_cast<Value>(l + r);
        case Reduction::kProd:
          return static_cast<Value>(l * r);
        case Reduction::kAnd:
          return static_cast<Value>(l & r);
        case Reduction::kOr:
          return static_cast<Value>(l | r);
        case Reduction::kXor:
          return static_cast<Value>(l ^ r);
        default:
          break;
      }
    } else {
      if (reduction == Reduction::kSum || reduction == Reduction::kAvg) return left + right;
      if (reduction == Reduction::kProd) return left * right;
      if (std::isnan(left)) return left;
      if (std::isnan(right)) return right;
    }
    if (reduction == Reduction::kMin) return right < left ? right : left;
    if (reduction == Reduction::kMax) return left < right ? right : left;
    std::abort();
  }
}

// Elements begin … begin + count of the ranks' inputs, reduced in rank order.
inline Bytes Reduced(const std::vector<Bytes>& inputs, std::uint64_t begin, std::uint64_t count,
                     collectives::Datatype datatype, collectives::Reduction reduction) {
  return WithType(datatype, [&](auto stored) {
    using Type = decltype(stored);
    using Value = typename Type::Accumulator;
    Bytes result(count * Type::kBytes);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::size_t at = (begin + i) * Type::kBytes;
      Value value = Type::Load(inputs[0].data() + at);
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
        value = Combine<Value>(value, Type::Load(inputs[rank].data() + at), reduction);
      }
      if constexpr (!std::is_same_v<Value, bool>) {
        if (reduction == collectives::Reduction::kAvg)
          value = static_cast<Value>(value / static_cast<Value>(inputs.size()));
      }
      Type::Store(result.data() + i * Type::kBytes, value);
    }
    return result;
  });
}

// For sums and averages of floats: how far the result is from the one in double precision, in units of the maximum
// rounding error. More than 1 is wrong.
inline double ErrorInBounds(const std::vector<Bytes>& inputs, const Bytes& result, collectives::Datatype datatype,
                            collectives::Reduction reduction) {
  const bool narrow = datatype == collectives::Datatype::kFloat16 || datatype == collectives::Datatype::kBfloat16;
  // Half a unit in the last place of the accumulator type for each step, and half a unit of the stored type.
  const double of_step = datatype == collectives::Datatype::kFloat64 ? 0x1p-53 : 0x1p-24;
  const double of_store = !narrow ? 0 : datatype == collectives::Datatype::kFloat16 ? 0x1p-11 : 0x1p-8;
  const double least = datatype == collectives::Datatype::kFloat16 ? 0x1p-25 : 0x1p-140;
  return WithType(datatype, [&](auto stored) -> double {
    using Type = decltype(stored);
    double worst = 0;
    for (std::size_t at = 0; at < result.size(); at += Type::kBytes) {
      long double sum = 0;
      long double sizes = 0;
      for (const Bytes& input : inputs) {
        const auto value = static_cast<long double>(Type::Load(input.data() + at));
        sum += value;
        sizes += std::fabs(value);
      }
      const long double divisor =
          reduction == collectives::Reduction::kAvg ? static_cast<long double>(inputs.size()) : 1;
      const auto got = static_cast<long double>(Type::Load(result.data() + at));
      const long double bound = sizes / divisor * (of_step * static_cast<double>(inputs.size() + 1) + of_store) + least;
      worst = std::max(worst, static_cast<double>(std::fabs(got - sum / divisor) / bound));
    }
    return worst;
  });
}

}  // namespace fulldeck::testing
