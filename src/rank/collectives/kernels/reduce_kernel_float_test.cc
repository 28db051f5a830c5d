// Special cases of floats: results that are not finite, conversions, and the calling thread's floating-point settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "collectives/kernels/reduce_kernel.h"
#include "collectives/kernels/reduce_kernel_reference.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fulldeck::collectives {
namespace {

constexpr Datatype kFloats[] = {Datatype::kFloat16, Datatype::kBfloat16, Datatype::kFloat32, Datatype::kFloat64};
constexpr Reduction kFloatReductions[] = {Reduction::kSum, Reduction::kAvg, Reduction::kMin, Reduction::kMax,
                                          Reduction::kProd};

struct Outcome {
  std::vector<std::byte> result;
  std::optional<std::uint64_t> first;  // index of the hit
  int source = -2;                     // of the hit; -2 if none
};

Outcome Reduced(InstructionSet set, Datatype datatype, Reduction reduction,
                const std::vector<std::vector<std::byte>>& sources, bool find_nonfinite) {
  Outcome outcome;
  outcome.result.resize(sources[0].size());
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  std::byte* output = outcome.result.data();
  ReduceJob job;
  job.sources = pointers.data();
  job.source_count = static_cast<int>(sources.size());
  job.outputs = &output;
  job.output_count = 1;
  job.count = sources[0].size() / BytesOf(datatype);
  job.divisor = static_cast<int>(sources.size());
  job.find_nonfinite = find_nonfinite;
  if (const std::optional<NonfiniteHit> hit = KernelFor(set, datatype, reduction)(job)) {
    outcome.first = hit->index;
    outcome.source = hit->source;
  }
  return outcome;
}

void Put(std::vector<std::byte>& into, std::size_t index, Datatype datatype, std::uint64_t bits) {
  std::memcpy(&into[index * BytesOf(datatype)], &bits, BytesOf(datatype));
}

TEST(NotFinite, IsFoundWhereverItComesFirst) {
  constexpr std::size_t kCount = 1100;
  for (const Datatype datatype : kFloats) {
    const FloatLayout layout = LayoutOf(datatype);
    const auto clean = RandomSources(3, datatype, DataKind::kNumbers, 3, kCount);
    for (const Reduction reduction : kFloatReductions) {
      for (const InstructionSet set : RunnableSets()) {
        EXPECT_EQ(Reduced(set, datatype, reduction, clean, true).first, std::nullopt);
        for (const std::size_t at : {0, 1, 7, 63, 64, 65, 511, 512, 700, 1087, 1088, 1098, 1099}) {
          auto sources = clean;
          // Min and max do not propagate an infinity of the opposite sign, so use NaNs for them.
          const bool infinite = reduction != Reduction::kMin && reduction != Reduction::kMax && at % 2 == 0;
          Put(sources[at % 3], at, datatype, layout.Infinity() | (infinite ? 0 : 1 + at % 5));
          if (at + 1 < kCount) Put(sources[0], kCount - 1, datatype, layout.Infinity() | layout.Quiet());
          const Outcome outcome = Reduced(set, datatype, reduction, sources, true);
          ASSERT_EQ(outcome.first, std::optional<std::uint64_t>(at))
              << NameOf(set) << " " << NameOf(datatype) << " " << NameOf(reduction);
          EXPECT_EQ(outcome.source, static_cast<int>(at % 3));
          EXPECT_EQ(outcome.result, ReferenceResult(sources, 3, datatype, reduction, 3));
          EXPECT_EQ(Reduced(set, datatype, reduction, sources, false).first, std::nullopt);
          EXPECT_EQ(Reduced(set, datatype, reduction, sources, false).result, outcome.result);
        }
      }
    }
  }
}

TEST(NotFinite, IsFoundInInfinitiesOfMinAndMax) {
  for (const Datatype datatype : kFloats) {
    const FloatLayout layout = LayoutOf(datatype);
    for (const InstructionSet set : RunnableSets()) {
      auto sources = RandomSources(3, datatype, DataKind::kNumbers, 2, 300);
      Put(sources[1], 100, datatype, layout.Infinity());
      Put(sources[1], 200, datatype, layout.Infinity() | layout.Sign());
      const Outcome most = Reduced(set, datatype, Reduction::kMax, sources, true);
      const Outcome least = Reduced(set, datatype, Reduction::kMin, sources, true);
      EXPECT_EQ(most.first, std::optional<std::uint64_t>(100)) << NameOf(set) << " " << NameOf(datatype);
      EXPECT_EQ(least.first, std::optional<std::uint64_t>(200)) << NameOf(set) << " " << NameOf(datatype);
      EXPECT_EQ(most.source, 1);
      EXPECT_EQ(least.source, 1);
    }
  }
}

TEST(NotFinite, IsFoundWhereFiniteInputsOverflow) {
  for (const Datatype datatype : kFloats) {
    const FloatLayout layout = LayoutOf(datatype);
    for (const InstructionSet set : RunnableSets()) {
      for (const std::size_t at : {0, 77, 299}) {
        auto sources = RandomSources(3, datatype, DataKind::kNumbers, 2, 300);
        Put(sources[0], at, datatype, layout.Infinity() - 1);
        Put(sources[1], at, datatype, layout.Infinity() - 1);
        for (const auto& source : sources) {
          ASSERT_TRUE(IsFinite(&source[at * BytesOf(datatype)], datatype));
        }
        for (const Reduction reduction : {Reduction::kSum, Reduction::kProd}) {
          const Outcome outcome = Reduced(set, datatype, reduction, sources, true);
          EXPECT_EQ(outcome.first, std::optional<std::uint64_t>(at)) << NameOf(set) << " " << NameOf(datatype);
          EXPECT_EQ(outcome.source, -1);
          EXPECT_FALSE(IsFinite(&outcome.result[at * BytesOf(datatype)], datatype));
        }
        // The average of 16-bit floats is in range again, because only the average is rounded to 16 bits; bfloat16 has
        // the range of float.
        const std::optional<std::uint64_t> found = Reduced(set, datatype, Reduction::kAvg, sources, true).first;
        EXPECT_EQ(found, datatype == Datatype::kFloat16 ? std::nullopt : std::optional<std::uint64_t>(at))
            << NameOf(set) << " " << NameOf(datatype);
      }
    }
  }
}

TEST(NotFinite, IsLaidToTheSourceThatTheResultIsWrittenOver) {
  for (const Datatype datatype : kFloats) {
    const FloatLayout layout = LayoutOf(datatype);
    for (const Reduction reduction : kFloatReductions) {
      for (const InstructionSet set : RunnableSets()) {
        auto sources = RandomSources(3, datatype, DataKind::kNumbers, 3, 300);
        Put(sources[1], 123, datatype, layout.Infinity() | layout.Quiet());
        Put(sources[2], 123, datatype, layout.Infinity());
        const std::byte* pointers[] = {sources[0].data(), sources[1].data(), sources[2].data()};
        std::byte* outputs[] = {sources[0].data(), sources[1].data(), sources[2].data()};
        ReduceJob job;
        job.sources = pointers;
        job.source_count = 3;
        job.outputs = outputs;
        job.output_count = 3;
        job.count = 300;
        job.divisor = 3;
        job.find_nonfinite = true;
        const std::optional<NonfiniteHit> hit = KernelFor(set, datatype, reduction)(job);
        ASSERT_TRUE(hit.has_value()) << NameOf(set) << " " << NameOf(datatype) << " " << NameOf(reduction);
        EXPECT_EQ(hit->index, 123U);
        EXPECT_EQ(hit->source, 1);
      }
    }
  }
}

TEST(NotFinite, IsFoundAtTheEndOfAReductionInChunksAndAttributedToThePrefixWhereItCameWithThat) {
  for (const Datatype datatype : kFloats) {
    const FloatLayout layout = LayoutOf(datatype);
    for (const InstructionSet set : RunnableSets()) {
      for (const std::size_t at : {5, 130}) {
        for (const std::size_t bad : {0, 1}) {
          auto sources = RandomSources(3, datatype, DataKind::kNumbers, 2, 131);
          Put(sources[bad], at, datatype, layout.Infinity() | 1);
          std::vector<std::byte> partial(131 * AccumulatorBytes(datatype));
          std::vector<std::byte> result(131 * BytesOf(datatype));
          const std::byte* pointers[] = {sources[0].data(), sources[1].data()};
          std::byte* output = result.data();
          const ReduceFunction reduce = KernelFor(set, datatype, Reduction::kSum);
          ReduceJob job;
          job.sources = pointers;
          job.source_count = 1;
          job.count = 131;
          job.partial = partial.data();
          EXPECT_FALSE(reduce(job).has_value());
          job.partial = nullptr;
          job.prefix = partial.data();
          job.sources = pointers + 1;
          job.outputs = &output;
          job.output_count = 1;
          job.find_nonfinite = true;
          const std::optional<NonfiniteHit> hit = reduce(job);
          ASSERT_TRUE(hit.has_value()) << NameOf(set) << " " << NameOf(datatype);
          EXPECT_EQ(hit->index, at);
          EXPECT_EQ(hit->source, bad == 0 ? -1 : 0);
        }
      }
    }
  }
}

TEST(NotFinite, IsCheckedForOneElementByItsBits) {
  for (const Datatype datatype : kFloats) {
    const FloatLayout layout = LayoutOf(datatype);
    const auto finite = [&](std::uint64_t bits) {
      return IsFinite(reinterpret_cast<const std::byte*>(&bits), datatype);
    };
    for (const std::uint64_t sign : {std::uint64_t{0}, layout.Sign()}) {
      EXPECT_TRUE(finite(sign)) << NameOf(datatype);
      EXPECT_TRUE(finite(sign | 1)) << NameOf(datatype);
      EXPECT_TRUE(finite(sign | (layout.Infinity() - 1))) << NameOf(datatype);
      EXPECT_FALSE(finite(sign | layout.Infinity())) << NameOf(datatype);
      EXPECT_FALSE(finite(sign | layout.Infinity() | 1)) << NameOf(datatype);
      EXPECT_FALSE(finite(sign | layout.Infinity() | layout.Quiet())) << NameOf(datatype);
    }
  }
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_TRUE(IsFinite(reinterpret_cast<const std::byte*>(&ones), Datatype::kInt64));
}

TEST(SixteenBitFloats, ComeThroughAReductionOfOneRankUnchangedButForQuietNans) {
  for (const Datatype datatype : {Datatype::kFloat16, Datatype::kBfloat16}) {
    const FloatLayout layout = LayoutOf(datatype);
    std::vector<std::vector<std::byte>> all(1, std::vector<std::byte>(65536 * 2));
    for (std::size_t i = 0; i < 65536; ++i) Put(all[0], i, datatype, i);
    for (const InstructionSet set : RunnableSets()) {
      for (const Reduction reduction : kFloatReductions) {
        const Outcome outcome = Reduced(set, datatype, reduction, all, false);
        for (std::size_t i = 0; i < 65536; ++i) {
          const std::uint64_t expected = layout.IsNan(i) ? i | layout.Quiet() : i;
          ASSERT_EQ(LoadBits(&outcome.result[i * 2], 2), expected)
              << NameOf(set) << " " << NameOf(datatype) << " " << i;
        }
      }
    }
  }
}

TEST(SixteenBitFloats, AreRoundedToNearestEvenFromEveryFloatThatLiesBetween) {
  for (const Datatype datatype : {Datatype::kFloat16, Datatype::kBfloat16}) {
    const FloatLayout layout = LayoutOf(datatype);
    const FloatLayout wide = LayoutOf(Datatype::kFloat32);
    std::vector<std::uint32_t> floats;
    for (std::uint64_t bits = 0; bits < layout.Infinity(); ++bits) {
      const double low = NumberOf(bits, layout);
      const double high =
          bits + 1 == layout.Infinity() ? 2 * low - NumberOf(bits - 1, layout) : NumberOf(bits + 1, layout);
      const auto middle = static_cast<std::uint32_t>(BitsOf((low + high) / 2, wide));
      for (const std::uint32_t between : {middle - 1, middle, middle + 1}) {
        floats.push_back(between & 0x7fffffff);
        floats.push_back(between | 0x80000000);
      }
    }
    std::mt19937_64 random(5);
    for (int i = 0; i < 100000; ++i) {
      const auto bits = static_cast<std::uint32_t>(random());
      floats.push_back(wide.IsNan(bits) ? 0 : bits);
    }
    for (const InstructionSet set : RunnableSets()) {
      std::vector<std::uint16_t> result(floats.size());
      auto* output = reinterpret_cast<std::byte*>(result.data());
      ReduceJob job;
      job.prefix = reinterpret_cast<const std::byte*>(floats.data());
      job.outputs = &output;
      job.output_count = 1;
      job.count = floats.size();
      KernelFor(set, datatype, Reduction::kSum)(job);
      for (std::size_t i = 0; i < floats.size(); ++i) {
        ASSERT_EQ(result[i], BitsOf(NumberOf(floats[i], wide), layout))
            << NameOf(set) << " " << NameOf(datatype) << " from 0x" << std::hex << floats[i];
      }
    }
  }
}

TEST(Nans, OfChunksKeepTheirSignAndPayloadOrAsMuchAsFits) {
  const FloatLayout wide = LayoutOf(Datatype::kFloat32);
  for (const InstructionSet set : RunnableSets()) {
    const std::uint32_t floats[] = {0x7fffffff, 0xffffffff, 0x7f800001, 0xffc02000, 0x7fc10000};
    const std::uint16_t halves[] = {0x7fff, 0xffff, 0x7e00, 0xfe01, 0x7e08};
    const std::uint16_t brains[] = {0x7fff, 0xffff, 0x7fc0, 0xffc0, 0x7fc1};
    std::uint16_t result[5] = {};
    auto* output = reinterpret_cast<std::byte*>(result);
    for (const std::uint32_t bits : floats) ASSERT_TRUE(wide.IsNan(bits));
    ReduceJob job;
    job.prefix = reinterpret_cast<const std::byte*>(floats);
    job.outputs = &output;
    job.output_count = 1;
    job.count = 5;
    for (const Reduction reduction : kFloatReductions) {
      KernelFor(set, Datatype::kFloat16, reduction)(job);
      EXPECT_TRUE(std::equal(result, result + 5, halves)) << NameOf(set) << " " << NameOf(reduction);
      KernelFor(set, Datatype::kBfloat16, reduction)(job);
      EXPECT_TRUE(std::equal(result, result + 5, brains)) << NameOf(set) << " " << NameOf(reduction);
    }
  }
}

TEST(ZerosOfBothSigns, GoByTheRankInMinAndMax) {
  const std::vector<float> plus(40, 0.0F);
  const std::vector<float> minus(40, -0.0F);
  const auto as_bytes = [](const std::vector<float>& floats) {
    const auto* begin = reinterpret_cast<const std::byte*>(floats.data());
    return std::vector<std::byte>(begin, begin + floats.size() * sizeof(float));
  };
  for (const InstructionSet set : RunnableSets()) {
    for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
      EXPECT_EQ(Reduced(set, Datatype::kFloat32, reduction, {as_bytes(plus), as_bytes(minus)}, false).result,
                as_bytes(plus));
      EXPECT_EQ(Reduced(set, Datatype::kFloat32, reduction, {as_bytes(minus), as_bytes(plus)}, false).result,
                as_bytes(minus));
    }
  }
}

// Changes the thread's own settings temporarily.
class OtherArithmetic {
 public:
#if defined(__x86_64__)
  explicit OtherArithmetic(bool flushes) : before_(_mm_getcsr()) {
    _mm_setcsr(flushes ? 0x9fc0U : 0x1f80U | 0x4000U);  // flush-to-zero and denormals-are-zero; or round up
    changed_ = _mm_getcsr();
  }
  ~OtherArithmetic() {
    _mm_setcsr(before_);
  }
  bool IsStillThere() const {
    return (_mm_getcsr() & ~0x3fU) == (changed_ & ~0x3fU);
  }

 private:
  unsigned before_;
  unsigned changed_;
#else
  explicit OtherArithmetic(bool flushes) : before_(Read()) {
    Write(flushes ? 1U << 24 : 1U << 22);
  }
  ~OtherArithmetic() {
    Write(before_);
  }
  bool IsStillThere() const {
    return Read() != before_;
  }

 private:
  static std::uint64_t Read() {
    std::uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value)::"memory");
    return value;
  }
  static void Write(std::uint64_t value) {
    asm volatile("msr fpcr, %0" ::"r"(value) : "memory");
  }
  std::uint64_t before_;
#endif
};

TEST(ArithmeticOfTheThread, ChangesNoResultAndIsLeftAsItWas) {
  for (const Datatype datatype : kFloats) {
    const auto sources = RandomSources(9, datatype, DataKind::kAnyBits, 3, 1500);
    for (const Reduction reduction : kFloatReductions) {
      const auto expected = ReferenceResult(sources, 3, datatype, reduction, 3);
      for (const InstructionSet set : RunnableSets()) {
        for (const bool flushes : {true, false}) {
          Outcome outcome;
          bool left_alone = false;
          {
            const OtherArithmetic other(flushes);
            outcome = Reduced(set, datatype, reduction, sources, false);
            left_alone = other.IsStillThere();
          }
          EXPECT_TRUE(left_alone) << NameOf(set);
          EXPECT_EQ(outcome.result, expected) << NameOf(set) << " " << NameOf(datatype) << " " << NameOf(reduction);
        }
      }
    }
  }
}

#if defined(__x86_64__)
TEST(ArithmeticOfTheThread, WithTrapsEnabledDoesNotDieOfNans) {
  const auto sources = RandomSources(9, Datatype::kFloat32, DataKind::kAnyBits, 3, 300);
  for (const InstructionSet set : RunnableSets()) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before & ~0x1f80U & ~0x3fU);
    const Outcome outcome = Reduced(set, Datatype::kFloat32, Reduction::kSum, sources, false);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & 0x1fbfU, 0U) << NameOf(set);
    EXPECT_EQ(outcome.result, ReferenceResult(sources, 3, Datatype::kFloat32, Reduction::kSum, 3)) << NameOf(set);
  }
}
#endif

}  // namespace
}  // namespace fulldeck::collectives
