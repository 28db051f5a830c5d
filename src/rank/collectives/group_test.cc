// Everything about a group except its arithmetic: invalid arguments, shared memory, records of results that are not
// finite, counters, and forked children.
#include "collectives/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>

#include "collectives/testing/fake_card.h"
#include "collectives/testing/problem.h"
#include "collectives/testing/ranks.h"

namespace fulldeck::collectives {
namespace {

using testing::Bytes;
using testing::FakeCard;
using testing::FreshName;
using ::testing::HasSubstr;
using testing::MakeProblem;
using testing::OptionsOf;
using testing::Placement;
using testing::Problem;
using testing::RankThreads;
using testing::Solve;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::unique_ptr<Group> Alone(GroupOptions options = {}) {
  if (options.name.empty()) options.name = FreshName("alone");
  Group::CreateResult made = Group::Create(OptionsOf(std::move(options), 0, 1));
  EXPECT_TRUE(made.status.ok()) << made.status.text();
  return std::move(made.group);
}

// ---- invalid arguments ----

TEST(Group, RefusesOptionsThatCannotBe) {
  const auto text_of = [](const GroupOptions& options) {
    Group::CreateResult made = Group::Create(options);
    EXPECT_EQ(made.group, nullptr);
    EXPECT_EQ(made.status.code(), FULLDECK_ERROR_ARGUMENT);
    return made.status.text();
  };
  GroupOptions options;
  options.name = "bad";
  options.key = "key";
  options.size = 0;
  EXPECT_THAT(text_of(options), HasSubstr("1 to 256 members, not 0"));
  options.size = 257;
  EXPECT_THAT(text_of(options), HasSubstr("not 257"));
  options.size = 2;
  options.rank = 2;
  EXPECT_THAT(text_of(options), HasSubstr("rank 2 is not in a group of 2"));
  options.rank = -1;
  EXPECT_THAT(text_of(options), HasSubstr("rank -1"));
  options.rank = 0;
  options.timeout = base::Duration::zero();
  EXPECT_THAT(text_of(options), HasSubstr("time-out"));
  options.timeout = std::chrono::seconds(1);
  options.nodes = {0};
  EXPECT_THAT(text_of(options), HasSubstr("1 NUMA nodes were given for 2 ranks"));
}

TEST(Group, SaysWhereAKeyComesFromWhenItHasNone) {
  for (const char* variable : {"FULLDECK_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(variable);
  GroupOptions options;
  options.name = "no key";
  Group::CreateResult made = Group::Create(options);
  EXPECT_EQ(made.status.code(), FULLDECK_ERROR_ARGUMENT);
  EXPECT_THAT(made.status.text(), HasSubstr("has no key"));
  setenv("MASTER_PORT", FreshName("port").c_str(), 1);
  EXPECT_TRUE(Group::Create(options).status.ok());
  unsetenv("MASTER_PORT");
}

TEST(Group, OfARunIsClosedToWhoeverLacksTheSecretOfTheRun) {
  const std::string port = FreshName("port");
  // Two ranks of one run, according to its variables; returns whether both get the group.
  const auto both_join = [&](const char* other_secret, base::Duration timeout) {
    GroupOptions options;
    options.name = FreshName("secret");
    options.size = 2;
    options.timeout = timeout;
    setenv("MASTER_PORT", port.c_str(), 1);
    setenv("FULLDECK_COLLECTIVES_KEY", "the secret of the run", 1);
    const pid_t other = fork();
    if (other == 0) {
      setenv("FULLDECK_COLLECTIVES_KEY", other_secret, 1);
      options.rank = 1;
      _exit(Group::Create(options).status.ok() ? 0 : 1);
    }
    const bool joined = Group::Create(options).status.ok();
    int status = 0;
    waitpid(other, &status, 0);
    unsetenv("MASTER_PORT");
    unsetenv("FULLDECK_COLLECTIVES_KEY");
    EXPECT_EQ(joined, status == 0);
    return joined;
  };
  EXPECT_FALSE(both_join("a guess", std::chrono::milliseconds(500)));
  EXPECT_TRUE(both_join("the secret of the run", std::chrono::minutes(1)));
}

TEST(Group, RefusesVariablesThatMeanNothing) {
  GroupOptions options = OptionsOf({}, 0, 1);
  options.name = FreshName("variables");
  const std::array<std::pair<const char*, const char*>, 6> cases = {{{"FULLDECK_COLLECTIVES_KERNEL", "mmx"},
                                                                     {"FULLDECK_COLLECTIVES_PIECE", "many"},
                                                                     {"FULLDECK_COLLECTIVES_PIECE", "1KiB"},
                                                                     {"FULLDECK_COLLECTIVES_PIECE", "2GiB"},
                                                                     {"FULLDECK_COLLECTIVES_NODES", "0,x"},
                                                                     {"FULLDECK_COLLECTIVES_NODES", "-1"}}};
  for (const auto& [variable, value] : cases) {
    setenv(variable, value, 1);
    Group::CreateResult made = Group::Create(options);
    EXPECT_EQ(made.status.code(), FULLDECK_ERROR_ARGUMENT) << variable << '=' << value;
    EXPECT_THAT(made.status.text(), HasSubstr(variable));
    unsetenv(variable);
  }
}

TEST(Group, RefusesArgumentsThatCannotBeAndStaysAsItWas) {
  std::unique_ptr<Group> group = Alone();
  ASSERT_NE(group, nullptr);
  std::array<float, 8> data = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<float, 8> other = {};
  const Buffer in = Buffer::Host(data.data());
  const Buffer out = Buffer::Host(other.data());
  const Buffer overlapping = Buffer::Host(data.data() + 1);
  const Buffer none;
  const auto refused = [&](const Status& status, const char* why) {
    EXPECT_EQ(status.code(), FULLDECK_ERROR_ARGUMENT) << why;
    EXPECT_THAT(status.text(), HasSubstr(why));
  };
  const auto sum = Reduction::kSum;
  refused(group->AllReduce(none, out, 4, Datatype::kFloat32, sum), "the input is NULL");
  refused(group->AllReduce(in, none, 4, Datatype::kFloat32, sum), "the output is NULL");
  refused(group->AllReduce(in, overlapping, 4, Datatype::kFloat32, sum), "overlap");
  refused(group->AllReduce(in, out, 4, static_cast<Datatype>(99), sum), "datatype 99");
  refused(group->AllReduce(in, out, 4, Datatype::kFloat32, static_cast<Reduction>(77)), "an unknown reduction");
  refused(group->AllReduce(in, out, 4, Datatype::kFloat32, Reduction::kXor), "xor is not possible with float32");
  refused(group->AllReduce(in, out, ~std::uint64_t{0}, Datatype::kFloat32, sum), "more than memory can hold");
  refused(group->Reduce(in, out, 4, Datatype::kFloat32, sum, 1), "root 1");
  refused(group->Broadcast(in, 4, Datatype::kFloat32, -1), "root -1");
  refused(group->Broadcast(none, 4, Datatype::kFloat32, 0), "the buffer is NULL");
  const std::array<Buffer, 2> two = {in, out};
  refused(group->AllGather(in, two, 4, Datatype::kFloat32), "2 buffers for 1 ranks");
  refused(group->Gather(in, {}, 4, Datatype::kFloat32, 0), "0 buffers for 1 ranks");
  const std::array<Buffer, 1> missing = {none};
  refused(group->AllGather(in, missing, 4, Datatype::kFloat32), "buffer 0 is NULL");
  const std::array<Buffer, 1> shifted = {overlapping};
  refused(group->AllGather(in, shifted, 4, Datatype::kFloat32), "overlap");
  refused(group->ReduceScatter(shifted, in, 4, Datatype::kFloat32, sum), "overlap");
  refused(group->Scatter(shifted, in, 4, Datatype::kFloat32, 0), "overlap");
  const std::array<RankBuffer, 1> part = {RankBuffer{in, 4}};
  const std::array<RankBuffer, 1> part_over_it = {RankBuffer{overlapping, 4}};
  const std::array<RankBuffer, 1> endless = {RankBuffer{in, ~std::uint64_t{0} / 2}};
  refused(group->AllToAll(part, {}, Datatype::kFloat32), "1 inputs and 0 outputs");
  refused(group->AllToAll(part, part_over_it, Datatype::kFloat32), "overlap");
  refused(group->AllToAll(endless, part, Datatype::kFloat32), "longer than memory can hold");
  refused(group->Send(nullptr, 4, 0, 0), "NULL");
  refused(group->Send(data.data(), 4, 0, 0), "itself");
  refused(group->Receive(data.data(), 4, 7, 0, nullptr), "rank 7");
  EXPECT_EQ(group->calls(), 0u);
  EXPECT_TRUE(group->AllReduce(in, out, 8, Datatype::kFloat32, sum).ok());
  EXPECT_EQ(other, data);
}

TEST(Group, TakesNullWhereNothingIsReadOrWritten) {
  RankThreads ranks(2);
  EXPECT_EQ(ranks.Run([](Group& group) {
    float value = 3;
    const Buffer none;
    const std::array<Buffer, 2> nothing = {};
    const std::array<RankBuffer, 2> no_parts = {};
    for (const Status& status :
         {group.AllReduce(none, none, 0, Datatype::kFloat32, Reduction::kSum),
          group.Broadcast(none, 0, Datatype::kInt8, 1), group.AllGather(none, nothing, 0, Datatype::kInt64),
          group.ReduceScatter(nothing, none, 0, Datatype::kInt64, Reduction::kMax),
          group.AllToAll(no_parts, no_parts, Datatype::kBool),
          group.Reduce(Buffer::Host(&value), group.rank() == 0 ? Buffer::Host(&value) : none, 1, Datatype::kFloat32,
                       Reduction::kSum, 0)}) {
      if (!status.ok()) return status.text();
    }
    return std::string(value == (group.rank() == 0 ? 6 : 3) ? "" : "wrong sum");
  }),
            "");
}

TEST(Group, TakesTheLongestTimeOutThereIs) {
  GroupOptions options;
  options.timeout = base::Duration::max();
  std::unique_ptr<Group> group = Alone(options);
  ASSERT_NE(group, nullptr);
  EXPECT_TRUE(group->Barrier().ok());
  group->SetTimeout(base::Duration::max());
  EXPECT_GT(group->timeout(), std::chrono::hours(24 * 365));
  EXPECT_TRUE(group->Barrier().ok());
}

TEST(Group, SaysWhatItIs) {
  GroupOptions options;
  options.chunk_bytes = 100000;
  options.name = FreshName("described");
  RankThreads ranks(3, options);
  ASSERT_EQ(ranks.failure(), "");
  EXPECT_THAT(ranks.group(1).Describe(), HasSubstr("3 ranks, kernel "));
  EXPECT_THAT(ranks.group(1).Describe(), HasSubstr("one level"));
  EXPECT_EQ(ranks.group(1).rank(), 1);
  EXPECT_EQ(ranks.group(1).size(), 3);
  EXPECT_EQ(ranks.group(1).name(), options.name);
}

// ---- counters ----

// 2^32 barriers take about an hour of small calls. The counters must wrap around, with chunks, levels and messages in
// progress.
TEST(Group, GoesOnWhenItsCountersWrapRound) {
  for (const std::uint32_t first : {0xffffffffu, 0xfffffff0u, 0x7ffffff0u, 0x80000000u - 3}) {
    for (const bool levels : {false, true}) {
      GroupOptions options;
      options.first_barrier = first;
      options.chunk_bytes = 4096;
      if (levels) options.nodes = {0, 0, 1};
      RankThreads ranks(3, options);
      EXPECT_EQ(ranks.Run([](Group& group) {
        for (std::uint64_t i = 0; i < 30; ++i) {
          const Problem problem = MakeProblem(i % 3 == 0 ? Operation::kReduceScatter : Operation::kAllReduce,
                                              Datatype::kInt32, Reduction::kSum, 0, i * 300, 3, i);
          if (std::string wrong = Solve(group, problem, {}); !wrong.empty()) return wrong;
        }
        return std::string();
      }),
                "")
          << first;
    }
  }
}

TEST(Group, CountsItsCalls) {
  RankThreads ranks(2);
  EXPECT_EQ(ranks.Run([](Group& group) {
    for (std::uint64_t i = 1; i <= 5; ++i) {
      if (!group.Barrier().ok() || group.calls() != i) return "call " + std::to_string(i);
    }
    return std::string();
  }),
            "");
}

// ---- shared memory ----

TEST(Group, GivesSharedMemoryThatIsZeroFreeAlignedAndItsOwn) {
  std::unique_ptr<Group> group = Alone();
  ASSERT_NE(group, nullptr);
  std::vector<std::byte*> taken;
  for (const std::uint64_t bytes : {1, 63, 64, 65, 4096, 5000000}) {
    Group::Allocation allocation = group->Allocate(bytes);
    ASSERT_NE(allocation.memory, nullptr) << allocation.status.text();
    auto* memory = static_cast<std::byte*>(allocation.memory);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
    EXPECT_TRUE(group->Owns(memory, bytes));
    EXPECT_FALSE(group->Owns(memory - 1, bytes));
    EXPECT_FALSE(group->Owns(memory, bytes + 64));
    std::memset(memory, 0x77, bytes);
    taken.push_back(memory);
  }
  for (std::byte* memory : taken) EXPECT_EQ(*memory, std::byte{0x77});
  for (std::byte* memory : taken) group->Free(memory);
  group->Free(nullptr);
  EXPECT_FALSE(group->Owns(taken[0], 1));
  float local = 0;
  EXPECT_FALSE(group->Owns(&local, sizeof local));
}

TEST(Group, CanStillAllocateAfterARequestForMoreThanThereIs) {
  std::unique_ptr<Group> group = Alone();
  ASSERT_NE(group, nullptr);
  for (const std::uint64_t bytes : {std::uint64_t{1} << 60, ~std::uint64_t{0}, ~std::uint64_t{0} - 4096}) {
    Group::Allocation too_much = group->Allocate(bytes);
    EXPECT_EQ(too_much.memory, nullptr);
    EXPECT_EQ(too_much.status.code(), FULLDECK_ERROR_SYSTEM);
  }
  Group::Allocation some = group->Allocate(1000);
  EXPECT_NE(some.memory, nullptr) << some.status.text();
  EXPECT_TRUE(group->Barrier().ok()) << "and the group is as it was";
}

// A call in place is not treated as shared if only a part of its memory was allocated, or if it spans two allocations.
TEST(Group, DistinguishesItsMemoryFromWhatOnlyLooksLikeIt) {
  RankThreads ranks(2);
  EXPECT_EQ(ranks.Run([](Group& group) {
    constexpr std::uint64_t kCount = 100000;
    Group::Allocation mine = group.Allocate(kCount * 4);
    if (mine.memory == nullptr) return mine.status.text();
    auto* values = static_cast<float*>(mine.memory);
    for (int turn = 0; turn < 3; ++turn) {
      for (std::uint64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 100);
      // Rank 1 has freed its memory and uses private data meanwhile.
      std::vector<float> other(values, values + kCount);
      float* data = group.rank() == 1 && turn == 1 ? other.data() : values;
      const Buffer buffer = Buffer::Host(data);
      if (Status status = group.AllReduce(buffer, buffer, kCount, Datatype::kFloat32, Reduction::kSum); !status.ok()) {
        return status.text();
      }
      for (std::uint64_t i = 0; i < kCount; ++i) {
        if (data[i] != static_cast<float>(2 * (i % 100))) return "wrong at " + std::to_string(i);
      }
    }
    group.Free(mine.memory);
    return std::string();
  }),
            "");
}

// ---- results that are not finite ----

enum class Path { kDirect, kChunks, kSharedInPlace, kLevels, kCards, kReduce, kReduceScatter };
class GroupNonfinite : public ::testing::TestWithParam<Path> {
 protected:
  static constexpr int kRanks = 4;
  static constexpr std::uint64_t kPart = 3000;

  GroupNonfinite() {
    GroupOptions options;
    options.check_finite = true;
    options.chunk_bytes = 4096;
    options.direct_bytes = 256;
    if (GetParam() == Path::kLevels) options.nodes = {0, 1, 1, 1};
    ranks_ = std::make_unique<RankThreads>(kRanks, options);
  }
  std::uint64_t Count() const { return GetParam() == Path::kDirect ? 60 : kPart; }

  struct Bad {
    int rank;
    std::uint64_t element;  // of the result; of part 2 for reduce_scatter
    float value;
  };
  // What rank 2 records (and, for an all_reduce, every rank) after a reduction of ones with these values among them.
  std::optional<Nonfinite> LastRecord(const std::vector<Bad>& bad, Reduction reduction = Reduction::kSum) {
    std::vector<std::optional<Nonfinite>> records(kRanks);
    const std::string wrong = ranks_->Run([&](Group& group) -> std::string {
      const bool scatters = GetParam() == Path::kReduceScatter;
      const std::uint64_t count = Count();
      std::vector<float> values(scatters ? count * kRanks : count, 1);
      for (const Bad& one : bad) {
        if (one.rank == group.rank()) values[one.element + (scatters ? 2 * count : 0)] = one.value;
      }
      const Bytes bytes(reinterpret_cast<const std::byte*>(values.data()),
                        reinterpret_cast<const std::byte*>(values.data() + values.size()));
      testing::Space space(group,
                           GetParam() == Path::kSharedInPlace ? Placement::Kind::kShared
                           : GetParam() == Path::kCards       ? Placement::Kind::kCard
                                                              : Placement::Kind::kHost,
                           bytes, 0);
      std::vector<float> result(count);
      Status status;
      if (scatters) {
        std::vector<Buffer> parts;
        for (std::uint64_t rank = 0; rank < kRanks; ++rank) parts.push_back(space.Stretch(rank * count * 4, count * 4));
        status = group.ReduceScatter(parts, Buffer::Host(result.data()), count, Datatype::kFloat32, reduction);
      } else {
        const Buffer buffer = space.Stretch(0, count * 4);
        status = GetParam() == Path::kReduce ? group.Reduce(buffer, buffer, count, Datatype::kFloat32, reduction, 2)
                                             : group.AllReduce(buffer, buffer, count, Datatype::kFloat32, reduction);
      }
      if (!status.ok()) return status.text();
      records[static_cast<std::size_t>(group.rank())] = group.LastNonfinite();
      if (records[static_cast<std::size_t>(group.rank())] && group.LastNonfinite()->call != group.calls())
        return "wrong call";
      return "";
    });
    EXPECT_EQ(wrong, "");
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& record = records[static_cast<std::size_t>(rank)];
      if (GetParam() == Path::kReduce) continue;
      if (GetParam() == Path::kReduceScatter) {
        EXPECT_TRUE(rank == 2 || !record) << "rank " << rank;
        continue;
      }
      EXPECT_EQ(record.has_value(), records[2].has_value()) << "rank " << rank;
      if (!record || !records[2]) continue;
      EXPECT_EQ(record->rank, records[2]->rank) << "rank " << rank;
      EXPECT_EQ(record->element, records[2]->element) << "rank " << rank;
    }
    return records[2];
  }
  void ExpectRecord(const std::vector<Bad>& bad, int rank, std::uint64_t element,
                    Reduction reduction = Reduction::kSum) {
    const std::optional<Nonfinite> record = LastRecord(bad, reduction);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->rank, rank);
    EXPECT_EQ(record->element, element);
  }

  std::unique_ptr<RankThreads> ranks_;
};
std::string NameOfPath(const ::testing::TestParamInfo<Path>& given) {
  constexpr const char* kNames[] = {"Direct",  "Pieces", "SharedInPlace", "Levels",
                                    "OnCards", "Reduce", "ReduceScatter"};
  return kNames[static_cast<std::size_t>(given.param)];
}
INSTANTIATE_TEST_SUITE_P(Paths, GroupNonfinite,
                         ::testing::Values(Path::kDirect, Path::kChunks, Path::kSharedInPlace, Path::kLevels,
                                           Path::kCards, Path::kReduce, Path::kReduceScatter),
                         NameOfPath);

TEST_P(GroupNonfinite, NamesTheFirstElementAndItsFirstRank) {
  const std::uint64_t last = Count() - 1;
  EXPECT_FALSE(LastRecord({}));
  ExpectRecord({{1, 0, kNan}}, 1, 0);
  ExpectRecord({{3, last, kInfinity}}, 3, last);
  ExpectRecord({{0, last, -kInfinity}, {3, last, kNan}}, 0, last);
  // The lowest element is kept, whoever caused it, and however far it is from where the other ranks are.
  for (const std::uint64_t first : {std::uint64_t{1}, last / 4, last / 2, last * 3 / 4, last - 1}) {
    ExpectRecord({{3, first, kNan}, {0, last, kNan}}, 3, first);
    ExpectRecord({{2, first, kNan}, {1, first, kInfinity}, {0, last, kNan}}, 1, first);
  }
  EXPECT_FALSE(LastRecord({})) << "the next reduction counts for itself";
}

TEST_P(GroupNonfinite, BlamesNobodyForAnOverflow) {
  constexpr float kLarge = 3e38f;
  const std::uint64_t at = Count() / 3;
  ExpectRecord({{1, at, kLarge}, {2, at, kLarge}}, -1, at);
  ExpectRecord({{1, at, kLarge}, {2, at, kLarge}, {3, at + 1, kNan}}, -1, at);
  ExpectRecord({{1, at, kLarge}, {2, at, kLarge}, {3, at, kNan}}, 3, at);
  ExpectRecord({{0, at, kLarge}, {3, at, kLarge}}, -1, at, Reduction::kProd);
}

TEST_P(GroupNonfinite, SaysNothingOfInputsThatTheResultDoesNotShow) {
  EXPECT_FALSE(LastRecord({{1, 5, kInfinity}}, Reduction::kMin));
  ExpectRecord({{1, 5, kInfinity}}, 1, 5, Reduction::kMax);
  ExpectRecord({{1, 5, kNan}}, 1, 5, Reduction::kMin);
}

TEST(GroupNonfiniteSwitch, IsOffUnlessRequested) {
  std::unique_ptr<Group> group = Alone();
  ASSERT_NE(group, nullptr);
  float value = kNan;
  const Buffer buffer = Buffer::Host(&value);
  EXPECT_TRUE(group->AllReduce(buffer, buffer, 1, Datatype::kFloat32, Reduction::kSum).ok());
  EXPECT_FALSE(group->LastNonfinite());
}

TEST(GroupNonfiniteSwitch, IsOfTheLastReductionAndIntegersAreAlwaysFinite) {
  GroupOptions options;
  options.check_finite = true;
  std::unique_ptr<Group> group = Alone(options);
  ASSERT_NE(group, nullptr);
  // The largest float16, and the bits of an infinity.
  std::array<std::uint16_t, 2> shorts = {0x7bff, 0x7c00};
  const Buffer buffer = Buffer::Host(shorts.data());
  EXPECT_TRUE(group->AllReduce(buffer, buffer, 2, Datatype::kFloat16, Reduction::kSum).ok());
  ASSERT_TRUE(group->LastNonfinite());
  EXPECT_EQ(group->LastNonfinite()->element, 1u);
  EXPECT_EQ(group->LastNonfinite()->rank, 0);
  EXPECT_TRUE(group->Broadcast(buffer, 2, Datatype::kFloat16, 0).ok());
  EXPECT_TRUE(group->LastNonfinite()) << "a broadcast is no reduction";
  EXPECT_TRUE(group->AllReduce(buffer, buffer, 2, Datatype::kInt16, Reduction::kSum).ok());
  EXPECT_FALSE(group->LastNonfinite());
}

TEST(GroupNonfiniteSwitch, SeesAnOverflowOfTheRounding) {
  GroupOptions options;
  options.check_finite = true;
  RankThreads ranks(2, options);
  EXPECT_EQ(ranks.Run([](Group& group) -> std::string {
    std::array<std::uint16_t, 3> shorts = {0x3c00, 0x7bff, 0x7bff};  // 1, 65504, 65504: the sum is finite in float
    const Buffer buffer = Buffer::Host(shorts.data());
    if (Status status = group.AllReduce(buffer, buffer, 3, Datatype::kFloat16, Reduction::kSum); !status.ok()) {
      return status.text();
    }
    const std::optional<Nonfinite> record = group.LastNonfinite();
    return record && record->element == 1 && record->rank == -1 ? "" : "not noted";
  }),
            "");
}

// ---- failing cards ----

TEST(Group, FailsOnAllRanksWhenTheCopyOfOneFails) {
  using Step = FakeCard::Step;
  for (const Step step : {Step::kStartIn, Step::kFinishIn, Step::kStartOut, Step::kFinishOut}) {
    for (const int number : {0, 1, 4}) {
      GroupOptions options;
      options.chunk_bytes = 4096;
      RankThreads ranks(3, options);
      std::vector<Status> statuses(3);
      EXPECT_EQ(ranks.Run([&](Group& group) -> std::string {
        FakeCard card(Bytes(50000));
        if (group.rank() == 1) {
          card.OnStep([&](Step at, int nth) -> base::Result<void> {
            if (at == step && nth == number) return base::Error{"the card fell off the bus", 0};
            return {};
          });
        }
        const Buffer buffer = Buffer::Staged(card);
        Status& status = statuses[static_cast<std::size_t>(group.rank())];
        status = group.AllReduce(buffer, buffer, 50000, Datatype::kUint8, Reduction::kSum);
        // If it was the last thing that it did, the others see it in the next call.
        if (status.ok()) status = group.Barrier();
        return "";
      }),
                "");
      for (const Status& status : statuses) {
        EXPECT_EQ(status.code(), FULLDECK_ERROR_SYSTEM);
        EXPECT_THAT(status.text(), HasSubstr("rank 1 could not copy its data: the card fell off the bus"));
      }
    }
  }
}

// ---- fork ----

int WaitForChild(pid_t child) {
  int ended = 0;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_TRUE(WIFEXITED(ended)) << "signal " << WTERMSIG(ended);
  return WEXITSTATUS(ended);
}

// A child has none of its parent's groups, cannot harm them, and does not hang on a lock that a thread of the parent
// held.
TEST(Group, IsRefusedInAForkedChild) {
  RankThreads ranks(2);
  ASSERT_EQ(ranks.failure(), "");
  // Rank 1 is in a call and holds its lock while this process forks.
  std::thread waiting([&] { EXPECT_TRUE(ranks.group(1).Barrier().ok()); });
  while (ranks.group(1).calls() == 0) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int wrong = 0;
    for (const int rank : {0, 1}) {
      Group& group = ranks.group(rank);
      float value = 1;
      const Buffer buffer = Buffer::Host(&value);
      wrong += group.Barrier().code() == FULLDECK_ERROR_ARGUMENT ? 0 : 1;
      wrong += group.AllReduce(buffer, buffer, 1, Datatype::kFloat32, Reduction::kSum).code() == FULLDECK_ERROR_ARGUMENT
                   ? 0
                   : 1;
      wrong += group.Send(&value, sizeof value, 1 - rank, 0).code() == FULLDECK_ERROR_ARGUMENT ? 0 : 1;
      wrong += group.Receive(&value, sizeof value, 1 - rank, 0, nullptr).code() == FULLDECK_ERROR_ARGUMENT ? 0 : 1;
      wrong += group.Allocate(100).status.code() == FULLDECK_ERROR_ARGUMENT ? 0 : 1;
      wrong += group.CurrentStatus().code() == FULLDECK_ERROR_ARGUMENT ? 0 : 1;
      group.Abort("a child aborts its parent's group");
    }
    _exit(wrong);
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(WaitForChild(child), 0);
  EXPECT_TRUE(ranks.group(0).Barrier().ok()) << "the parent goes on as if nothing had been";
  waiting.join();
}

TEST(Group, CanBeDestroyedInAForkedChildAndLivesOnInItsParent) {
  GroupOptions options;
  options.name = FreshName("destroyed");
  options.cpus = 64;  // so that there is a helper, whose thread does not exist in the child
  std::unique_ptr<Group> groups[2];
  const auto on_both = [&](const std::function<void(int)>& body) {
    std::thread other(body, 1);
    body(0);
    other.join();
  };
  const auto call = [&](int rank) {
    const Problem problem = MakeProblem(Operation::kAllReduce, Datatype::kInt8, Reduction::kSum, 0, 3000000, 2, 1);
    EXPECT_EQ(Solve(*groups[rank], problem, {}), "");
  };
  on_both([&](int rank) { groups[rank] = Group::Create(OptionsOf(options, rank, 2)).group; });
  ASSERT_TRUE(groups[0] && groups[1]);
  on_both(call);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    groups[0].reset();
    groups[1].reset();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(WaitForChild(child), 0);
  on_both(call);
}

// ---- trace ----

TEST(Group, TracesWhatItDidAndWhen) {
  GroupOptions options;
  options.chunk_bytes = 4096;
  RankThreads ranks(2, options);
  EXPECT_EQ(ranks.Run([](Group& group) -> std::string {
    std::vector<TraceEvent> seen;
    group.SetTrace([&](std::span<const TraceEvent> events) { seen.assign(events.begin(), events.end()); });
    std::vector<std::int32_t> data(4096);
    const Buffer buffer = Buffer::Host(data.data());
    if (Status status = group.AllReduce(buffer, buffer, data.size(), Datatype::kInt32, Reduction::kSum); !status.ok()) {
      return status.text();
    }
    group.SetTrace(nullptr);
    std::array<int, 4> kinds = {};
    for (const TraceEvent& event : seen) {
      ++kinds[static_cast<std::size_t>(event.kind)];
      if (event.end_ns < event.begin_ns) return "an event ends before it begins";
    }
    const auto count = [&](TraceEvent::Kind kind) { return kinds[static_cast<std::size_t>(kind)]; };
    if (count(TraceEvent::Kind::kIn) != 4 || count(TraceEvent::Kind::kReduce) != 4 ||
        count(TraceEvent::Kind::kOut) != 4) {
      return "4 pieces were to go in, be reduced and go out";
    }
    if (Status status = group.Barrier(); !status.ok()) return status.text();
    return "";
  }),
            "");
}

}  // namespace
}  // namespace fulldeck::collectives
