#include "collectives/kernels/reduce_kernel.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "collectives/kernels/reduce_kernel_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace fulldeck::collectives {
namespace {

// Best first.
constexpr InstructionSet kSets[] = {InstructionSet::kAvx512, InstructionSet::kAvx2, InstructionSet::kNeon,
                                    InstructionSet::kPlain};
constexpr int kSetCount = 4;
constexpr int kDatatypeCount = FULLDECK_FLOAT64 + 1;
constexpr int kReductionCount = FULLDECK_XOR + 1;
constexpr std::size_t kMaxShownName = 64;

const KernelTable* TableOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain:
      return kPlainKernels;
    case InstructionSet::kAvx2:
      return kAvx2Kernels;
    case InstructionSet::kAvx512:
      return kAvx512Kernels;
    case InstructionSet::kNeon:
      return kNeonKernels;
  }
  return nullptr;
}

#if defined(__x86_64__)

// The registers that the kernel saves on a context switch (XCR0): without that, a feature of the CPU cannot be used.
std::uint64_t SavedRegisters() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

bool CpuHas(InstructionSet set) {
  if (set == InstructionSet::kPlain) return true;
  if (set == InstructionSet::kNeon) return false;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c1 = 0;
  unsigned d = 0;
  unsigned b7 = 0;
  unsigned c7 = 0;
  if (__get_cpuid(1, &a, &b, &c1, &d) == 0 || __get_cpuid_count(7, 0, &a, &b7, &c7, &d) == 0) return false;
  const std::uint64_t saved = SavedRegisters();
  constexpr std::uint64_t kYmm = 0x06;
  constexpr std::uint64_t kZmm = 0xe6;
  if (set == InstructionSet::kAvx2) {
    return (saved & kYmm) == kYmm && (c1 & bit_AVX) != 0 && (c1 & bit_F16C) != 0 && (b7 & bit_AVX2) != 0;
  }
  constexpr unsigned kWanted = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  return (saved & kZmm) == kZmm && CpuHas(InstructionSet::kAvx2) && (b7 & kWanted) == kWanted;
}

#elif defined(__aarch64__)

bool CpuHas(InstructionSet set) {
  if (set == InstructionSet::kNeon) return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
  return set == InstructionSet::kPlain;
}

#else

bool CpuHas(InstructionSet set) {
  return set == InstructionSet::kPlain;
}

#endif

std::string RunnableNames() {
  std::vector<std::string> names;
  for (const InstructionSet set : kSets) {
    if (CanRun(set)) names.emplace_back(NameOf(set));
  }
  return base::Join(names, ", ");
}

std::optional<NonfiniteHit> RunJob(const ReduceJob& job, InstructionSet set, Datatype datatype, Reduction reduction) {
  FULLDECK_CHECK(job.source_count >= 1 || (job.source_count == 0 && job.prefix != nullptr));
  FULLDECK_CHECK(job.output_count >= 0);
  FULLDECK_CHECK(job.partial == nullptr || (job.output_count == 0 && !job.find_nonfinite));
  FULLDECK_CHECK(reduction != Reduction::kAvg || job.divisor >= 1);
  const NonfiniteHit hit = TableOf(set)->functions[static_cast<int>(datatype)][static_cast<int>(reduction)](job);
  if (hit.index == kAllFinite) return std::nullopt;
  return hit;
}

// One function per table entry, because a ReduceFunction carries no state except its address.
template <int kPlace>
std::optional<NonfiniteHit> RunPlace(const ReduceJob& job) {
  return RunJob(job, static_cast<InstructionSet>(kPlace / (kDatatypeCount * kReductionCount)),
                static_cast<Datatype>(kPlace / kReductionCount % kDatatypeCount),
                static_cast<Reduction>(kPlace % kReductionCount));
}

template <int... kPlace>
constexpr auto AllPlaces(std::integer_sequence<int, kPlace...> /*places*/) {
  return std::array<ReduceFunction, sizeof...(kPlace)>{RunPlace<kPlace>...};
}

constexpr auto kPlaces = AllPlaces(std::make_integer_sequence<int, kSetCount * kDatatypeCount * kReductionCount>());

// Infinity and NaN have all exponent bits set.
template <typename Bits>
bool HasFiniteExponent(const std::byte* element, Bits exponent) {
  Bits bits = 0;
  std::memcpy(&bits, element, sizeof bits);
  return (bits & exponent) != exponent;
}

}  // namespace

const char* NameOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain:
      return "plain";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kNeon:
      return "neon";
  }
  return "unknown";
}

bool CanRun(InstructionSet set) {
  // Querying the CPU takes tens of microseconds in a virtual machine.
  static const std::array<bool, std::size(kSets)> can_run = [] {
    std::array<bool, std::size(kSets)> answers{};
    for (const InstructionSet each : kSets) {
      answers.at(static_cast<std::size_t>(each)) = TableOf(each) != nullptr && CpuHas(each);
    }
    return answers;
  }();
  return can_run.at(static_cast<std::size_t>(set));
}

base::Result<InstructionSet> ChooseInstructionSet(std::string_view forced) {
  for (const InstructionSet set : kSets) {
    if (forced.empty() ? CanRun(set) : forced == NameOf(set)) {
      if (CanRun(set)) return set;
      return base::Error{.message =
                             std::string("FULLDECK_COLLECTIVES_KERNEL is ") + NameOf(set) + ", which " +
                             (TableOf(set) == nullptr ? "this build does not have" : "this processor cannot run") +
                             ". Take one of " + RunnableNames() + ", or unset it for the best of them."};
    }
  }
  const std::string shown = base::Printable(forced.substr(0, kMaxShownName));
  return base::Error{.message = "FULLDECK_COLLECTIVES_KERNEL is '" + shown +
                                (forced.size() > kMaxShownName ? "…" : "") +
                                "', which is no instruction set. Take one of " + RunnableNames() +
                                ", or unset it for the best of them."};
}

std::uint64_t AccumulatorBytes(Datatype datatype) {
  if (datatype == Datatype::kFloat16 || datatype == Datatype::kBfloat16) return sizeof(float);
  return BytesOf(datatype);
}

ReduceFunction KernelFor(InstructionSet set, Datatype datatype, Reduction reduction) {
  FULLDECK_CHECK(CanRun(set));
  FULLDECK_CHECK(CanReduce(datatype, reduction));
  const int place = (static_cast<int>(set) * kDatatypeCount + static_cast<int>(datatype)) * kReductionCount +
                    static_cast<int>(reduction);
  return kPlaces[static_cast<std::size_t>(place)];
}

bool IsFinite(const std::byte* element, Datatype datatype) {
  switch (datatype) {
    case Datatype::kFloat16:
      return HasFiniteExponent<std::uint16_t>(element, 0x7c00);
    case Datatype::kBfloat16:
      return HasFiniteExponent<std::uint16_t>(element, 0x7f80);
    case Datatype::kFloat32:
      return HasFiniteExponent<std::uint32_t>(element, 0x7f800000);
    case Datatype::kFloat64:
      return HasFiniteExponent<std::uint64_t>(element, 0x7ff0000000000000);
    default:
      return true;
  }
}

}  // namespace fulldeck::collectives
