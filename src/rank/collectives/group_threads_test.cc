// Several threads: in one group, in many groups concurrently, and against each other. The thread sanitizer runs these
// too; ranks that are threads share one mapping, so it sees all accesses of the members to each other's memory.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string_view>
#include <thread>

#include "collectives/group.h"
#include "collectives/testing/problem.h"
#include "collectives/testing/ranks.h"

namespace fulldeck::collectives {
namespace {

using testing::Draws;
using testing::FreshName;
using ::testing::HasSubstr;
using testing::MakeProblem;
using testing::Mix;
using testing::OptionsOf;
using testing::Placement;
using testing::Problem;
using testing::RankThreads;
using testing::Solve;

base::TimePoint Now() {
  return std::chrono::steady_clock::now();
}

Placement AnyPlacement(Draws& draws) {
  return {static_cast<Placement::Kind>(draws.Below(3)), static_cast<Placement::Kind>(draws.Below(3)), draws.OneIn(2),
          static_cast<unsigned>(draws.Below(9))};
}

Problem AnyProblem(int size, std::uint64_t seed, std::uint64_t most_bytes) {
  Draws draws(seed);
  const auto operation = static_cast<Operation>(1 + draws.Below(9));
  const Datatype datatype = testing::kDatatypes[draws.Below(std::size(testing::kDatatypes))];
  Reduction reduction = Reduction::kSum;
  do {
    reduction = testing::kReductions[draws.Below(std::size(testing::kReductions))];
  } while (!CanReduce(datatype, reduction));
  // Most are short; long ones have many chunks.
  const std::uint64_t most = draws.OneIn(8) ? most_bytes : most_bytes / 16;
  return MakeProblem(operation, datatype, reduction, static_cast<int>(draws.Below(static_cast<std::uint64_t>(size))),
                     draws.Below(most / BytesOf(datatype) + 1), size, seed);
}

// Threads of one process in one group would have to agree on the order of calls; here all make the same call.
TEST(GroupThreads, OfOneRankTakeTurnsInOneGroup) {
  constexpr int kCallers = 3;
  constexpr int kCalls = 200;
  GroupOptions options;
  options.chunk_bytes = 4096;
  RankThreads ranks(2, options);
  EXPECT_EQ(ranks.Run([](Group& group) -> std::string {
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&] {
        for (int i = 0; i < kCalls; ++i) {
          std::vector<std::int32_t> values(3000, group.rank() + 1);
          const Buffer buffer = Buffer::Host(values.data());
          const Status status = group.AllReduce(buffer, buffer, values.size(), Datatype::kInt32, Reduction::kSum);
          for (const std::int32_t value : values) wrong += !status.ok() || value != 3 ? 1 : 0;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    if (group.calls() != kCallers * kCalls) return "the calls were not counted";
    return wrong == 0 ? "" : "wrong sums";
  }),
            "");
}

// The world, two halves, and pairs across them; every rank has one thread per group. Messages are sent between the
// ranks of the world meanwhile.
TEST(GroupThreads, OfManyGroupsDoNotDisturbEachOther) {
  constexpr int kRanks = 4;
  constexpr std::uint64_t kCalls = 60;
  const std::vector<std::vector<int>> groups = {{0, 1, 2, 3}, {0, 1}, {2, 3}, {1, 2}, {3, 0}};
  const std::string run = FreshName("many");
  std::vector<std::string> errors(kRanks * (groups.size() + 1));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::size_t number = 0; number < groups.size(); ++number) {
      const auto& members = groups[number];
      const auto place = std::find(members.begin(), members.end(), rank);
      if (place == members.end()) continue;
      const auto own = static_cast<int>(place - members.begin());
      threads.emplace_back([&errors, &run, rank, number, own, size = static_cast<int>(members.size())] {
        std::string& text = errors[static_cast<std::size_t>(rank) * 6 + number];
        GroupOptions options;
        options.name = run + " " + std::to_string(number);
        options.chunk_bytes = 4096;
        Group::CreateResult made = Group::Create(OptionsOf(options, own, size));
        if (made.group == nullptr) {
          text = made.status.text();
          return;
        }
        std::thread talker;
        std::string talked;
        if (number == 0) {
          talker = std::thread([&group = *made.group, &talked, own] {
            for (std::uint64_t i = 0; i < kCalls && talked.empty(); ++i) {
              const int to = (own + 1 + static_cast<int>(i % 3)) % kRanks;
              const int from = (own + kRanks - 1 - static_cast<int>(i % 3)) % kRanks;
              const std::uint64_t bytes = Mix(i) % 70000;
              const std::vector<char> data(bytes, static_cast<char>(own * 50 + static_cast<int>(i)));
              std::vector<char> got(bytes);
              auto receive = group.messages().PostReceive(got.data(), bytes, i % 5 == 0 ? -1 : from, i);
              auto send = group.messages().PostSend(data.data(), bytes, to, i);
              const base::TimePoint deadline = Now() + std::chrono::minutes(4);
              if (Status status = group.messages().Wait(*receive, deadline); !status.ok()) talked = status.text();
              if (Status status = group.messages().Wait(*send, deadline); !status.ok()) talked = status.text();
              if (receive->peer() != from) talked = "from the wrong rank";
              const std::vector<char> expected(bytes, static_cast<char>(from * 50 + static_cast<int>(i)));
              if (got != expected) talked = "a wrong message";
            }
          });
        }
        Draws draws(static_cast<std::uint64_t>(rank) * 100 + number);
        for (std::uint64_t i = 0; i < kCalls && text.empty(); ++i) {
          const Problem problem = AnyProblem(size, Mix(number) + i, 40000);
          text = Solve(*made.group, problem, AnyPlacement(draws));
        }
        if (talker.joinable()) talker.join();
        if (text.empty()) text = talked;
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(testing::Join(errors), "");
}

TEST(GroupThreads, CanReadTheStatusOfAGroupWhileACallGoesOn) {
  GroupOptions options;
  options.chunk_bytes = 4096;
  options.check_finite = true;
  RankThreads ranks(3, options);
  ASSERT_EQ(ranks.failure(), "");
  std::atomic<bool> stop{false};
  std::thread checking([&] {
    while (!stop) {
      for (int rank = 0; rank < 3; ++rank) {
        Group& group = ranks.group(rank);
        EXPECT_TRUE(group.CurrentStatus().ok());
        (void)group.LastNonfinite();
        (void)group.calls();
        (void)group.timeout();
        group.SetTimeout(std::chrono::minutes(3));
        Group::Allocation allocation = group.Allocate(5000);
        EXPECT_NE(allocation.memory, nullptr);
        EXPECT_TRUE(group.Owns(allocation.memory, 5000));
        group.Free(allocation.memory);
      }
    }
  });
  EXPECT_EQ(ranks.Run([](Group& group) {
    for (std::uint64_t i = 0; i < 100; ++i) {
      const Problem problem = MakeProblem(Operation::kAllReduce, Datatype::kFloat32, Reduction::kSum, 0, 5000, 3, i);
      if (std::string wrong = Solve(group, problem, {Placement::Kind::kShared, Placement::Kind::kShared, i % 2 == 0});
          !wrong.empty()) {
        return wrong;
      }
    }
    return std::string();
  }),
            "");
  stop = true;
  checking.join();
}

// Normally a rank has a helper only if there are spare CPUs; here it always has one.
TEST(GroupThreads, HelpInLongCalls) {
  GroupOptions options;
  options.cpus = 64;
  options.check_finite = true;
  RankThreads ranks(2, options);
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Operation operation = i == 4   ? Operation::kReduceScatter
                                : i == 5 ? Operation::kReduce
                                         : Operation::kAllReduce;
    const Datatype datatype = i % 2 == 0 ? Datatype::kFloat32 : Datatype::kInt8;
    // At least two MiB, and not a multiple of anything.
    const Problem problem =
        MakeProblem(operation, datatype, Reduction::kSum, 1, (2100000 + i * 1013) / BytesOf(datatype), 2, i);
    using Kind = Placement::Kind;
    const Placement placement = {i == 2   ? Kind::kShared
                                 : i == 3 ? Kind::kCard
                                          : Kind::kHost,
                                 Kind::kHost, i % 3 != 1, 4};
    EXPECT_EQ(ranks.Run([&](Group& group) { return Solve(group, problem, placement); }), "") << i;
  }
  // The first result that is not finite, on either side of the boundary of the helper's part.
  for (const std::uint64_t at : {7, 300000, 599999}) {
    EXPECT_EQ(ranks.Run([&](Group& group) -> std::string {
      std::vector<float> values(600000, 1);
      if (group.rank() == 1) values[at] = values[599999] = std::nanf("");
      const Buffer buffer = Buffer::Host(values.data());
      if (Status status = group.AllReduce(buffer, buffer, values.size(), Datatype::kFloat32, Reduction::kSum);
          !status.ok()) {
        return status.text();
      }
      const std::optional<Nonfinite> record = group.LastNonfinite();
      if (!record || record->element != at || record->rank != 1)
        return "noted at " + std::to_string(record ? record->element : 0);
      return "";
    }),
              "");
  }
}

// ---- abort ----

TEST(GroupThreads, AreFreedFromAWaitingCallByAbort) {
  GroupOptions options;
  options.name = FreshName("aborted");
  RankThreads ranks(3, options);
  ASSERT_EQ(ranks.failure(), "");
  base::TimePoint aborted;
  std::thread aborting([&] {
    // Ranks 1 and 2 wait for rank 0, which never comes.
    while (ranks.group(1).calls() == 0 || ranks.group(2).calls() == 0) std::this_thread::yield();
    aborted = Now();
    ranks.group(0).Abort("the user has had enough");
  });
  std::vector<Status> statuses(3);
  std::vector<base::TimePoint> times(3);
  EXPECT_EQ(ranks.Run([&](Group& group) -> std::string {
    if (group.rank() == 0) return "";
    statuses[static_cast<std::size_t>(group.rank())] = group.Barrier();
    times[static_cast<std::size_t>(group.rank())] = Now();
    return "";
  }),
            "");
  aborting.join();
  for (const std::size_t rank : {1, 2}) {
    EXPECT_EQ(statuses[rank].code(), FULLDECK_ERROR_ABORTED);
    EXPECT_THAT(statuses[rank].text(), HasSubstr("was aborted by rank 0: the user has had enough"));
    EXPECT_LT(times[rank] - aborted, std::chrono::seconds(30));
  }
  // Permanently, on all ranks, for every kind of call.
  EXPECT_EQ(ranks.Run([&](Group& group) -> std::string {
    float value = 0;
    const Buffer buffer = Buffer::Host(&value);
    for (const Status& status :
         {group.Barrier(), group.AllReduce(buffer, buffer, 1, Datatype::kFloat32, Reduction::kSum),
          group.Send(&value, 4, (group.rank() + 1) % 3, 0), group.CurrentStatus(),
          group.Receive(&value, 4, -1, 0, nullptr)}) {
      if (status.code() != FULLDECK_ERROR_ABORTED || status.text() != statuses[1].text()) return status.text() + "!";
    }
    return "";
  }),
            "");
}

TEST(GroupThreads, AreFreedFromAReceiveByAbort) {
  RankThreads ranks(2);
  ASSERT_EQ(ranks.failure(), "");
  std::thread aborting([&] {
    while (ranks.group(1).messages().pending() == 0) std::this_thread::yield();
    ranks.group(0).Abort("no more messages");
  });
  EXPECT_EQ(ranks.Run([&](Group& group) -> std::string {
    if (group.rank() == 0) return "";
    int value = 0;
    const Status status = group.Receive(&value, sizeof value, 0, 0, nullptr);
    return status.code() == FULLDECK_ERROR_ABORTED ? ""
                                                   : "code " + std::to_string(status.code()) + ": " + status.text();
  }),
            "");
  aborting.join();
}

// ---- leaks ----

int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}
int Mappings() {
  int lines = 0;
  FILE* const maps = fopen("/proc/self/maps", "r");
  for (int c = fgetc(maps); c != EOF; c = fgetc(maps)) lines += c == '\n' ? 1 : 0;
  fclose(maps);
  return lines;
}
// Ignores the folders and files of concurrently running tests.
int EntriesOfShm() {
  int count = 0;
  if (DIR* const folder = opendir("/dev/shm"); folder != nullptr) {
    while (const dirent* const entry = readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (!name.starts_with("fulldeck-test-") && !name.starts_with(".fulldeck-doctor-")) ++count;
    }
    closedir(folder);
  }
  return count;
}

// A thousand groups one after another, used and left, some of them after a failure.
TEST(GroupThreads, LeaveNothingBehindAfterAThousandGroups) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kGroups = 200;
#else
  constexpr int kGroups = 1000;
#endif
  const std::string run = FreshName("thousand");
  std::array<std::string, 2> errors;
  const auto live = [&](int rank, int from, int until) {
    for (int i = from; i < until && errors[static_cast<std::size_t>(rank)].empty(); ++i) {
      GroupOptions options;
      options.name = run + " " + std::to_string(i);
      options.chunk_bytes = 4096;
      options.timeout = std::chrono::minutes(2);
      Group::CreateResult made = Group::Create(OptionsOf(options, rank, 2));
      std::string& text = errors[static_cast<std::size_t>(rank)];
      if (made.group == nullptr) {
        text = made.status.text();
        return;
      }
      Group& group = *made.group;
      for (std::uint64_t call = 0; call < 5 && text.empty(); ++call) {
        text =
            Solve(group, MakeProblem(Operation::kAllReduce, Datatype::kInt32, Reduction::kSum, 0, call * 500, 2, call),
                  {call % 2 == 0 ? Placement::Kind::kShared : Placement::Kind::kCard, Placement::Kind::kHost, true});
      }
      if (i % 3 == 0) group.Abort("enough");
      if (i % 5 == 0 && !group.Allocate(100000).status.ok() && i % 3 != 0) text = "no memory";
    }
  };
  const auto both = [&](int from, int until) {
    std::thread other(live, 1, from, until);
    live(0, from, until);
    other.join();
  };
  both(0, 20);
  const int descriptors = OpenDescriptors();
  const int mappings = Mappings();
  const int shm = EntriesOfShm();
  both(20, kGroups);
  EXPECT_EQ(testing::Join({errors.begin(), errors.end()}), "");
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_LE(EntriesOfShm(), shm);
  EXPECT_LT(Mappings(), mappings + 40) << "the allocator may keep some of its own, a thousand groups do not";
}

// ---- what the thread sanitizer must find ----

#ifdef __SANITIZE_THREAD__
// A card that reports its copy as done and does it later, when the others are already reading: this is what a missing
// barrier would look like.
class LyingCard final : public Staging {
 public:
  base::Result<void> StartIn(std::byte* to, std::uint64_t /*offset*/, std::uint64_t bytes, int /*ticket*/) override {
    to_ = to;
    bytes_ = bytes;
    return {};
  }
  base::Result<void> FinishIn(int /*ticket*/) override { return {}; }
  base::Result<void> StartOut(std::uint64_t /*offset*/, const std::byte* /*from*/, std::uint64_t /*bytes*/,
                              int /*ticket*/) override {
    std::memset(to_, 1, bytes_);
    return {};
  }
  base::Result<void> FinishOut(int /*ticket*/) override { return {}; }

 private:
  std::byte* to_ = nullptr;
  std::uint64_t bytes_ = 0;
};

void RaceInASlot() {
  RankThreads ranks(2);
  std::string errors = ranks.Run([](Group& group) -> std::string {
    LyingCard card;
    std::vector<std::uint8_t> values(1000);
    const Buffer buffer = group.rank() == 0 ? Buffer::Staged(card) : Buffer::Host(values.data());
    return group.AllReduce(buffer, buffer, values.size(), Datatype::kUint8, Reduction::kSum).text();
  });
  std::exit(errors.empty() ? 0 : 1);
}

TEST(GroupThreadsDeathTest, ARaceInASlotIsFoundByTheSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RaceInASlot(), ::testing::ExitedWithCode(66), "data race");
}
#endif

}  // namespace
}  // namespace fulldeck::collectives
