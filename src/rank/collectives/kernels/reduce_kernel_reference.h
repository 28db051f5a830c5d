// For tests: the reductions of reduce_kernel.h, reimplemented one element at a time, with arithmetic that shares
// nothing with the kernels (exact numbers, rounded explicitly), and test data.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "collectives/kernels/reduce_kernel.h"

namespace fulldeck::collectives {

constexpr Datatype kAllDatatypes[] = {
    Datatype::kBool,     Datatype::kInt8,    Datatype::kUint8,   Datatype::kInt16,  Datatype::kUint16,
    Datatype::kInt32,    Datatype::kUint32,  Datatype::kInt64,   Datatype::kUint64, Datatype::kFloat16,
    Datatype::kBfloat16, Datatype::kFloat32, Datatype::kFloat64,
};
constexpr Reduction kAllReductions[] = {Reduction::kSum,  Reduction::kAvg, Reduction::kMin, Reduction::kMax,
                                        Reduction::kProd, Reduction::kAnd, Reduction::kOr,  Reduction::kXor};

inline std::vector<InstructionSet> RunnableSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512, InstructionSet::kNeon}) {
    if (CanRun(set)) sets.push_back(set);
  }
  return sets;
}

// The layout of a float: bits of the stored mantissa, and of the exponent.
struct FloatLayout {
  int mantissa;
  int exponent;
  int Bias() const { return (1 << (exponent - 1)) - 1; }
  std::uint64_t Infinity() const { return ((std::uint64_t{1} << exponent) - 1) << mantissa; }
  std::uint64_t Quiet() const { return std::uint64_t{1} << (mantissa - 1); }
  std::uint64_t Sign() const { return std::uint64_t{1} << (mantissa + exponent); }
  bool IsNan(std::uint64_t bits) const { return (bits & ~Sign()) > Infinity(); }
  bool IsInfinite(std::uint64_t bits) const { return (bits & ~Sign()) == Infinity(); }
};

inline FloatLayout LayoutOf(Datatype datatype) {
  switch (datatype) {
    case Datatype::kFloat16:
      return {10, 5};
    case Datatype::kBfloat16:
      return {7, 8};
    case Datatype::kFloat32:
      return {23, 8};
    default:
      return {52, 11};
  }
}

// The value of finite or infinite bits.
inline double NumberOf(std::uint64_t bits, const FloatLayout& layout) {
  const std::uint64_t mantissa = bits & (layout.Quiet() * 2 - 1);
  const int exponent = static_cast<int>((bits & layout.Infinity()) >> layout.mantissa);
  double number = 0;
  if (layout.IsInfinite(bits)) {
    number = std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    number = std::ldexp(static_cast<double>(mantissa), 1 - layout.Bias() - layout.mantissa);
  } else {
    number = std::ldexp(static_cast<double>(mantissa | layout.Quiet() * 2), exponent - layout.Bias() - layout.mantissa);
  }
  return (bits & layout.Sign()) != 0 ? -number : number;
}

// The nearest number of the layout, ties to even. `number` is not NaN.
inline std::uint64_t BitsOf(double number, const FloatLayout& layout) {
  const std::uint64_t sign = std::signbit(number) ? layout.Sign() : 0;
  const double magnitude = std::fabs(number);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | layout.Infinity();
  const int smallest = 1 - layout.Bias();
  const int exponent = std::max(std::ilogb(magnitude), smallest);
  const auto whole = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, layout.mantissa - exponent)));
  // A mantissa that is rounded up to a power of two carries into the exponent, and from the largest number into
  // infinity.
  const std::uint64_t bits = (static_cast<std::uint64_t>(exponent - smallest) << layout.mantissa) + whole;
  return sign | std::min(bits, layout.Infinity());
}

// NaNs follow the rules of reduce_kernel.h; `a` comes from the lower rank.
inline std::uint64_t ReferenceFloatStep(std::uint64_t a, std::uint64_t x, const FloatLayout& layout,
                                        Reduction reduction) {
  if (layout.IsNan(a)) return a | layout.Quiet();
  if (layout.IsNan(x)) return x | layout.Quiet();
  const double left = NumberOf(a, layout);
  const double right = NumberOf(x, layout);
  if (reduction == Reduction::kMin) return right < left ? x : a;
  if (reduction == Reduction::kMax) return right > left ? x : a;
  // In double, these are exact enough to be rounded again: 53 bits are more than 2 × 24 + 2. For double itself, they
  // are the result.
  const double result = reduction == Reduction::kProd ? left * right : left + right;
  if (std::isnan(result)) return layout.Infinity() | layout.Quiet();
  return BitsOf(result, layout);
}

inline std::uint64_t LoadBits(const std::byte* from, std::uint64_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, from, bytes);
  return bits;
}

// `column` contains the elements of the ranks, in rank order; results are returned as the bits of the element's type.
inline std::uint64_t ReferenceFloat(const std::vector<std::uint64_t>& column, Datatype datatype, Reduction reduction,
                                    int divisor) {
  const FloatLayout stored = LayoutOf(datatype);
  const FloatLayout wide = LayoutOf(datatype == Datatype::kFloat64 ? Datatype::kFloat64 : Datatype::kFloat32);
  const auto widen = [&](std::uint64_t bits) {
    if (!stored.IsNan(bits)) return BitsOf(NumberOf(bits, stored), wide);
    const std::uint64_t payload = bits & (stored.Quiet() * 2 - 1);
    return ((bits & stored.Sign()) != 0 ? wide.Sign() : 0) | wide.Infinity() |
           payload << (wide.mantissa - stored.mantissa);
  };
  std::uint64_t a = widen(column[0]);
  for (std::size_t i = 1; i < column.size(); ++i) a = ReferenceFloatStep(a, widen(column[i]), wide, reduction);
  if (wide.IsNan(a)) {
    const std::uint64_t payload = ((a & (wide.Quiet() * 2 - 1)) >> (wide.mantissa - stored.mantissa)) | stored.Quiet();
    return ((a & wide.Sign()) != 0 ? stored.Sign() : 0) | stored.Infinity() | payload;
  }
  double number = NumberOf(a, wide);
  if (reduction == Reduction::kAvg) number = NumberOf(BitsOf(number / divisor, wide), wide);
  return BitsOf(number, stored);
}

inline std::uint64_t ReferenceInteger(const std::vector<std::uint64_t>& column, Datatype datatype, Reduction reduction,
                                      int divisor) {
  __extension__ typedef __int128 Wide;
  const int bits = static_cast<int>(BytesOf(datatype)) * 8;
  const bool is_signed = datatype == Datatype::kInt8 || datatype == Datatype::kInt16 || datatype == Datatype::kInt32 ||
                         datatype == Datatype::kInt64;
  const auto wrapped = [&](Wide value) {
    const Wide modulus = Wide{1} << bits;
    Wide rest = ((value % modulus) + modulus) % modulus;
    if (is_signed && rest >= modulus / 2) rest -= modulus;
    return rest;
  };
  Wide a = wrapped(column[0]);
  for (std::size_t i = 1; i < column.size(); ++i) {
    const Wide x = wrapped(column[i]);
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kAvg:
        a = wrapped(a + x);
        break;
      case Reduction::kMin:
        a = x < a ? x : a;
        break;
      case Reduction::kMax:
        a = x > a ? x : a;
        break;
      case Reduction::kProd:
        // Of the product of two 64-bit numbers only the lower half is used, and unsigned 128 bits hold any such
        // product.
        // NOLINTNEXTLINE(bugprone-misplaced-widening-cast)
        a = wrapped(static_cast<Wide>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(x)));
        break;
      case Reduction::kAnd:
        a = a & x;
        break;
      case Reduction::kOr:
        a = a | x;
        break;
      default:
        a = a ^ x;
        break;
    }
  }
  if (reduction == Reduction::kAvg) a = a / divisor;
  return static_cast<std::uint64_t>(a) & (bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1);
}

inline std::uint64_t ReferenceBool(const std::vector<std::uint64_t>& column, Reduction reduction) {
  std::size_t set = 0;
  for (const std::uint64_t element : column) set += element != 0 ? 1 : 0;
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
    case Reduction::kOr:
      return set > 0 ? 1 : 0;
    case Reduction::kXor:
      return set % 2;
    default:
      return set == column.size() ? 1 : 0;
  }
}

inline std::vector<std::byte> ReferenceResult(const std::vector<std::vector<std::byte>>& sources,
                                              std::size_t source_count, Datatype datatype, Reduction reduction,
                                              int divisor) {
  const std::uint64_t bytes = BytesOf(datatype);
  std::vector<std::byte> result(sources[0].size());
  std::vector<std::uint64_t> column(source_count);
  for (std::size_t at = 0; at < result.size(); at += bytes) {
    for (std::size_t s = 0; s < source_count; ++s) column[s] = LoadBits(&sources[s][at], bytes);
    const std::uint64_t bits = datatype == Datatype::kBool ? ReferenceBool(column, reduction)
                               : IsFloat(datatype)         ? ReferenceFloat(column, datatype, reduction, divisor)
                                                           : ReferenceInteger(column, datatype, reduction, divisor);
    std::memcpy(&result[at], &bits, bytes);
  }
  return result;
}

// ---- test data ----

enum class DataKind : std::uint8_t {
  kNumbers,  // such as gradients: all results are finite
  kAnyBits,  // all bits random, with frequent special values
};

inline std::uint64_t RandomElement(std::mt19937_64& random, Datatype datatype, DataKind kind) {
  const std::uint64_t bits = random();
  if (datatype == Datatype::kBool) return bits % 2 == 0 ? 0 : bits >> 56;
  if (!IsFloat(datatype)) return bits % 16 == 0 ? ~std::uint64_t{0} << (bits >> 32) % 64 : bits;
  const FloatLayout layout = LayoutOf(datatype);
  if (kind == DataKind::kNumbers) {
    return BitsOf((static_cast<double>(bits % 20001) - 10000) / 4096, layout);
  }
  const std::uint64_t sign = (bits >> 40) % 2 == 0 ? 0 : layout.Sign();
  switch (bits % 24) {
    case 0:
      return sign;
    case 1:
      return sign | layout.Infinity();
    case 2:
      return sign | (layout.Infinity() - 1);  // the largest finite value
    case 3:
      return sign | (bits >> 48) % layout.Quiet();  // a subnormal
    case 4:
      return sign | layout.Infinity() | (1 + (bits >> 48) % (layout.Quiet() - 1));  // a signaling NaN
    case 5:
      return sign | layout.Infinity() | layout.Quiet() | (bits >> 48) % layout.Quiet();
    case 6:
      return sign | BitsOf(1, layout);
    default:
      return bits >> 16;
  }
}

inline std::vector<std::vector<std::byte>> RandomSources(std::uint64_t seed, Datatype datatype, DataKind kind,
                                                         std::size_t source_count, std::size_t count) {
  std::mt19937_64 random(seed);
  const std::uint64_t bytes = BytesOf(datatype);
  std::vector<std::vector<std::byte>> sources(source_count, std::vector<std::byte>(count * bytes));
  for (std::vector<std::byte>& source : sources) {
    for (std::size_t at = 0; at < source.size(); at += bytes) {
      const std::uint64_t element = RandomElement(random, datatype, kind);
      std::memcpy(&source[at], &element, bytes);
    }
  }
  return sources;
}

// "float32 3: 0x7fc00000 0x7f800001": the element of each rank, for failure messages.
inline std::string ColumnText(const std::vector<std::vector<std::byte>>& sources, Datatype datatype,
                              std::size_t index) {
  std::string text = std::string(NameOf(datatype)) + " " + std::to_string(index) + ":";
  char number[32];
  for (const std::vector<std::byte>& source : sources) {
    std::snprintf(number, sizeof number, " 0x%llx",
                  static_cast<unsigned long long>(LoadBits(&source[index * BytesOf(datatype)], BytesOf(datatype))));
    text += number;
  }
  return text;
}

}  // namespace fulldeck::collectives
