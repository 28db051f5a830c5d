#include "collectives/kernels/reduce_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "collectives/kernels/reduce_kernel_reference.h"

namespace fulldeck::collectives {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kGuardBytes = 192;
constexpr std::byte kGuard{0xa5};

// `size` bytes at `misalignment` bytes from a cache line, with guards on both sides.
class GuardedBytes {
 public:
  GuardedBytes(std::size_t size, std::size_t misalignment)
      : memory_(size + 2 * kGuardBytes + 128, kGuard), size_(size), begin_(kGuardBytes + misalignment) {
    begin_ += 64 - reinterpret_cast<std::uintptr_t>(memory_.data() + kGuardBytes) % 64;
  }
  GuardedBytes(const std::vector<std::byte>& bytes, std::size_t size, std::size_t misalignment)
      : GuardedBytes(size, misalignment) {
    std::copy_n(bytes.begin(), size, memory_.begin() + static_cast<std::ptrdiff_t>(begin_));
  }
  std::byte* data() { return memory_.data() + begin_; }
  std::vector<std::byte> Content() const {
    return {memory_.begin() + static_cast<std::ptrdiff_t>(begin_),
            memory_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_)};
  }
  bool GuardsAreUntouched() const {
    const auto untouched = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(begin_), untouched) &&
           std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_), memory_.end(), untouched);
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t size_;
  std::size_t begin_;
};

struct Case {
  Datatype datatype;
  Reduction reduction;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Datatype datatype : kAllDatatypes) {
    for (const Reduction reduction : kAllReductions) {
      if (CanReduce(datatype, reduction)) cases.push_back({datatype, reduction});
    }
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return std::string(collectives::NameOf(info.param.datatype)) + "_" + collectives::NameOf(info.param.reduction);
}

class EveryReduction : public ::testing::TestWithParam<Case> {
 protected:
  Datatype datatype() const { return GetParam().datatype; }
  Reduction reduction() const { return GetParam().reduction; }
  std::size_t bytes() const { return BytesOf(datatype()); }

  std::vector<std::byte> First(const std::vector<std::byte>& all, std::size_t count) const {
    return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count * bytes())};
  }

  // The index of the first element that differs; -1: none.
  std::ptrdiff_t FirstDifference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) const {
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (a[i] != b[i]) return static_cast<std::ptrdiff_t>(i / bytes());
    }
    return a.size() == b.size() ? -1 : static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()) / bytes());
  }
};

INSTANTIATE_TEST_SUITE_P(ReduceKernel, EveryReduction, ::testing::ValuesIn(AllCases()), NameOf);

TEST_P(EveryReduction, EqualsExactArithmeticAtEveryCountAndAlignment) {
  constexpr std::size_t kMost = 1031;
  constexpr std::size_t kCounts[] = {0, 1, 3, 17, 63, 64, 65, 127, 257, 999, 1000, 1001, kMost};
  for (const DataKind kind : {DataKind::kNumbers, DataKind::kAnyBits}) {
    for (int source_count = 1; source_count <= 9; ++source_count) {
      const auto sources = RandomSources(static_cast<std::uint64_t>(source_count), datatype(), kind,
                                         static_cast<std::size_t>(source_count), kMost);
      const auto expected = ReferenceResult(sources, sources.size(), datatype(), reduction(), source_count);
      for (const InstructionSet set : RunnableSets()) {
        const ReduceFunction reduce = KernelFor(set, datatype(), reduction());
        for (const std::size_t count : kCounts) {
          std::vector<GuardedBytes> guarded;
          std::vector<const std::byte*> pointers;
          for (std::size_t s = 0; s < sources.size(); ++s) {
            guarded.emplace_back(sources[s], count * bytes(), (s * 7 + count) % 64);
          }
          for (GuardedBytes& source : guarded) pointers.push_back(source.data());
          GuardedBytes result(count * bytes(), (count * 5 + 1) % 64);
          std::byte* output = result.data();
          ReduceJob job;
          job.sources = pointers.data();
          job.source_count = source_count;
          job.outputs = &output;
          job.output_count = 1;
          job.count = count;
          job.divisor = source_count;
          EXPECT_FALSE(reduce(job).has_value());
          const std::ptrdiff_t wrong = FirstDifference(result.Content(), First(expected, count));
          ASSERT_EQ(wrong, -1) << NameOf(set) << ", " << count << " elements of " << source_count << " ranks; "
                               << ColumnText(sources, datatype(), static_cast<std::size_t>(wrong)) << " gave "
                               << ColumnText({result.Content()}, datatype(), static_cast<std::size_t>(wrong))
                               << ", expected " << ColumnText({expected}, datatype(), static_cast<std::size_t>(wrong));
          ASSERT_TRUE(result.GuardsAreUntouched()) << NameOf(set) << ", " << count << " elements";
          for (std::size_t s = 0; s < sources.size(); ++s) {
            ASSERT_TRUE(guarded[s].GuardsAreUntouched() && guarded[s].Content() == First(sources[s], count));
          }
        }
      }
    }
  }
}

TEST_P(EveryReduction, GivesTheBitsOfThePlainOneInEverySetWhateverTheBits) {
  constexpr std::size_t kCount = 20011;
  constexpr int kSources = 5;
  const auto sources = RandomSources(42, datatype(), DataKind::kAnyBits, kSources, kCount);
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  std::vector<std::byte> of_plain;
  for (const InstructionSet set : RunnableSets()) {
    std::vector<std::byte> result(kCount * bytes());
    std::byte* output = result.data();
    ReduceJob job;
    job.sources = pointers.data();
    job.source_count = kSources;
    job.outputs = &output;
    job.output_count = 1;
    job.count = kCount;
    job.divisor = kSources;
    KernelFor(set, datatype(), reduction())(job);
    if (set == InstructionSet::kPlain) of_plain = result;
    const std::ptrdiff_t wrong = FirstDifference(result, of_plain);
    ASSERT_EQ(wrong, -1) << NameOf(set) << ", " << ColumnText(sources, datatype(), static_cast<std::size_t>(wrong));
  }
}

TEST_P(EveryReduction, MayWriteOverItsSourcesAndToSeveralOutputs) {
  constexpr std::size_t kCount = 777;
  constexpr int kSources = 4;
  const auto sources = RandomSources(7, datatype(), DataKind::kAnyBits, kSources, kCount);
  const auto expected = ReferenceResult(sources, kSources, datatype(), reduction(), kSources);
  for (const InstructionSet set : RunnableSets()) {
    std::vector<GuardedBytes> buffers;
    for (int s = 0; s < kSources; ++s) {
      buffers.emplace_back(sources[static_cast<std::size_t>(s)], kCount * bytes(), static_cast<std::size_t>(s) * 3);
    }
    GuardedBytes apart(kCount * bytes(), 5);
    const std::vector<const std::byte*> pointers = {buffers[0].data(), buffers[1].data(), buffers[2].data(),
                                                    buffers[3].data()};
    const std::vector<std::byte*> outputs = {buffers[3].data(), apart.data(), buffers[0].data(), buffers[1].data()};
    ReduceJob job;
    job.sources = pointers.data();
    job.source_count = kSources;
    job.outputs = outputs.data();
    job.output_count = 4;
    job.count = kCount;
    job.divisor = kSources;
    KernelFor(set, datatype(), reduction())(job);
    for (const std::size_t written : {0, 1, 3}) {
      EXPECT_EQ(FirstDifference(buffers[written].Content(), expected), -1) << NameOf(set) << ", buffer " << written;
    }
    EXPECT_EQ(FirstDifference(apart.Content(), expected), -1) << NameOf(set);
    EXPECT_EQ(buffers[2].Content(), sources[2]) << NameOf(set);
    for (const GuardedBytes& buffer : buffers) EXPECT_TRUE(buffer.GuardsAreUntouched()) << NameOf(set);
    EXPECT_TRUE(apart.GuardsAreUntouched()) << NameOf(set);
  }
}

TEST_P(EveryReduction, DoneInChunksGivesTheBitsOfTheWhole) {
  constexpr int kSources = 6;
  for (const std::size_t count : {1, 5, 64, 300, 1013}) {
    const auto sources = RandomSources(11, datatype(), DataKind::kAnyBits, kSources, count);
    const auto expected = ReferenceResult(sources, kSources, datatype(), reduction(), kSources);
    std::vector<const std::byte*> pointers;
    for (const auto& source : sources) pointers.push_back(source.data());
    for (const InstructionSet set : RunnableSets()) {
      const ReduceFunction reduce = KernelFor(set, datatype(), reduction());
      // First [0, a), then [a, b) in place, then the remaining sources with the end of the reduction; with b == 6 the
      // last step has no sources.
      for (int a = 1; a < kSources; ++a) {
        for (int b = a; b <= kSources; ++b) {
          GuardedBytes accumulators(count * AccumulatorBytes(datatype()), static_cast<std::size_t>(a * 8 + b));
          GuardedBytes result(count * bytes(), 3);
          std::byte* output = result.data();
          ReduceJob job;
          job.count = count;
          job.divisor = kSources;
          job.sources = pointers.data();
          job.source_count = a;
          job.partial = accumulators.data();
          EXPECT_FALSE(reduce(job).has_value());
          if (b > a) {
            job.prefix = accumulators.data();
            job.sources = pointers.data() + a;
            job.source_count = b - a;
            EXPECT_FALSE(reduce(job).has_value());
          }
          job.prefix = accumulators.data();
          job.partial = nullptr;
          job.sources = pointers.data() + b;
          job.source_count = kSources - b;
          job.outputs = &output;
          job.output_count = 1;
          reduce(job);
          const std::ptrdiff_t wrong = FirstDifference(result.Content(), expected);
          ASSERT_EQ(wrong, -1) << NameOf(set) << ", parts at " << a << " and " << b << ", "
                               << ColumnText(sources, datatype(), static_cast<std::size_t>(wrong));
          ASSERT_TRUE(accumulators.GuardsAreUntouched() && result.GuardsAreUntouched()) << NameOf(set);
        }
      }
    }
  }
}

TEST(ReduceKernel, DividesIntegersByAnyNumberOfRanks) {
  for (const InstructionSet set : RunnableSets()) {
    for (const int divisor : {1, 2, 3, 7, 10, 128, 255, 256, 100003, std::numeric_limits<int>::max()}) {
      for (const Datatype datatype : kAllDatatypes) {
        if (!CanReduce(datatype, Reduction::kAvg) || IsFloat(datatype)) continue;
        const std::size_t count = BytesOf(datatype) == 1 ? 256 : 4096;
        auto sources = RandomSources(static_cast<std::uint64_t>(divisor), datatype, DataKind::kAnyBits, 1, count);
        for (std::size_t i = 0; i < count; ++i) {
          // Every byte; for wider types, values next to a multiple of the divisor, where a rounded quotient would be
          // off by one.
          const std::uint64_t near = LoadBits(&sources[0][i * BytesOf(datatype)], BytesOf(datatype)) /
                                         static_cast<std::uint64_t>(divisor) * static_cast<std::uint64_t>(divisor) -
                                     i % 2;
          const std::uint64_t value = BytesOf(datatype) == 1 ? i : near;
          std::memcpy(&sources[0][i * BytesOf(datatype)], &value, BytesOf(datatype));
        }
        const auto expected = ReferenceResult(sources, 1, datatype, Reduction::kAvg, divisor);
        std::vector<std::byte> result(expected.size());
        const std::byte* source = sources[0].data();
        std::byte* output = result.data();
        ReduceJob job;
        job.sources = &source;
        job.source_count = 1;
        job.outputs = &output;
        job.output_count = 1;
        job.count = count;
        job.divisor = divisor;
        KernelFor(set, datatype, Reduction::kAvg)(job);
        EXPECT_EQ(result, expected) << NameOf(set) << " " << collectives::NameOf(datatype) << " by " << divisor;
      }
    }
  }
}

TEST(ReduceKernel, AccumulatesIn32BitsWhatHas16BitsOfFloat) {
  EXPECT_EQ(AccumulatorBytes(Datatype::kFloat16), 4U);
  EXPECT_EQ(AccumulatorBytes(Datatype::kBfloat16), 4U);
  EXPECT_EQ(AccumulatorBytes(Datatype::kFloat64), 8U);
  EXPECT_EQ(AccumulatorBytes(Datatype::kInt8), 1U);
  EXPECT_EQ(AccumulatorBytes(Datatype::kBool), 1U);
}

// ---- the choice of an instruction set ----

// What the operating system's kernel reports about this CPU.
bool SystemReports(const std::vector<std::string>& flags) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line);
    const std::vector<std::string> has{std::istream_iterator<std::string>(words), {}};
    return std::all_of(flags.begin(), flags.end(),
                       [&](const std::string& flag) { return std::find(has.begin(), has.end(), flag) != has.end(); });
  }
  return false;
}

TEST(InstructionSet, CanRunWhatTheCpuHasAndNothingElse) {
  EXPECT_TRUE(CanRun(InstructionSet::kPlain));
#if defined(__x86_64__)
  EXPECT_EQ(CanRun(InstructionSet::kAvx2), SystemReports({"avx2", "f16c"}));
  EXPECT_EQ(CanRun(InstructionSet::kAvx512), SystemReports({"avx512f", "avx512bw", "avx512dq", "avx512vl"}));
  EXPECT_FALSE(CanRun(InstructionSet::kNeon));
#elif defined(__aarch64__)
  EXPECT_TRUE(CanRun(InstructionSet::kNeon));
  EXPECT_FALSE(CanRun(InstructionSet::kAvx2));
  EXPECT_FALSE(CanRun(InstructionSet::kAvx512));
#endif
}

TEST(InstructionSet, IsTheBestOneUnlessItIsForced) {
  const auto best = ChooseInstructionSet("");
  ASSERT_TRUE(best.ok());
  const auto sets = RunnableSets();
  EXPECT_EQ(*best, sets.back());
  for (const InstructionSet set : sets) {
    const auto forced = ChooseInstructionSet(NameOf(set));
    ASSERT_TRUE(forced.ok()) << forced.error().message;
    EXPECT_EQ(*forced, set);
  }
}

TEST(InstructionSet, ThatCannotRunHereIsRefusedByName) {
  for (const InstructionSet set : {InstructionSet::kAvx2, InstructionSet::kAvx512, InstructionSet::kNeon}) {
    if (CanRun(set)) continue;
    const auto chosen = ChooseInstructionSet(NameOf(set));
    ASSERT_FALSE(chosen.ok());
    EXPECT_THAT(chosen.error().message, HasSubstr(std::string("FULLDECK_COLLECTIVES_KERNEL is ") + NameOf(set)));
    EXPECT_THAT(chosen.error().message, HasSubstr("plain"));
  }
}

TEST(InstructionSet, ThatNobodyKnowsIsRefusedAndShownWithCare) {
  for (const std::string name : {"sse9", "AVX2", " avx2", "plain\n"}) {
    EXPECT_FALSE(ChooseInstructionSet(name).ok()) << name;
  }
  const auto chosen = ChooseInstructionSet("av\x1b[31mx" + std::string(5000, 'y'));
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(chosen.error().message, HasSubstr("FULLDECK_COLLECTIVES_KERNEL is 'av?[31mx"));
  EXPECT_THAT(chosen.error().message, HasSubstr("plain"));
  EXPECT_THAT(chosen.error().message, Not(HasSubstr("\x1b")));
  EXPECT_LT(chosen.error().message.size(), 300U);
}

TEST(ReduceKernelDeathTest, EndsTheProcessWhenItsContractIsBroken) {
  EXPECT_DEATH(KernelFor(InstructionSet::kPlain, Datatype::kFloat32, Reduction::kXor), "CanReduce");
  EXPECT_DEATH(KernelFor(InstructionSet::kPlain, Datatype::kBool, Reduction::kAvg), "CanReduce");
#if defined(__x86_64__)
  EXPECT_DEATH(KernelFor(InstructionSet::kNeon, Datatype::kFloat32, Reduction::kSum), "CanRun");
#else
  EXPECT_DEATH(KernelFor(InstructionSet::kAvx2, Datatype::kFloat32, Reduction::kSum), "CanRun");
#endif
  const ReduceFunction average = KernelFor(InstructionSet::kPlain, Datatype::kFloat32, Reduction::kAvg);
  ReduceJob job;
  EXPECT_DEATH(average(job), "source_count");
  const float one = 1;
  const auto* source = reinterpret_cast<const std::byte*>(&one);
  job.sources = &source;
  job.source_count = 1;
  job.count = 1;
  job.divisor = 0;
  EXPECT_DEATH(average(job), "divisor");
}

}  // namespace
}  // namespace fulldeck::collectives
