#include "collectives/waiting.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <thread>
#include <vector>

namespace fulldeck::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

base::TimePoint Now() {
  return std::chrono::steady_clock::now();
}
base::TimePoint InAWhile() {
  return Now() + seconds(60);
}

struct Place {
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uint32_t> sleepers{0};
};

constexpr auto kContinue = [] { return true; };
// A lost wake shows as a test that takes this long.
constexpr WaitPolicy kSleepAtOnce = {.pauses = 0, .yield_for = base::Duration(0), .sleep_slice = seconds(50)};

class SharedPlace {
 public:
  SharedPlace() {
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    place_ = new (memory) Place[2];
  }
  ~SharedPlace() { munmap(place_, 4096); }
  SharedPlace(const SharedPlace&) = delete;
  SharedPlace& operator=(const SharedPlace&) = delete;
  Place& operator[](int i) { return place_[i]; }

 private:
  Place* place_ = nullptr;
};

// Waits until a thread is really sleeping there.
bool SomebodySleeps(const Place& place) {
  const base::TimePoint deadline = InAWhile();
  while (place.sleepers.load() == 0) {
    if (Now() > deadline) return false;
    sched_yield();
  }
  return true;
}

TEST(WaitPolicy, SpinsOnlyWhereEveryRankHasACpu) {
  EXPECT_GE(WaitPolicyFor(8, 16).pauses, 100);
  EXPECT_GE(WaitPolicyFor(2, 2).pauses, 100);
  EXPECT_EQ(WaitPolicyFor(3, 2).pauses, 0);
  EXPECT_EQ(WaitPolicyFor(2, 1).pauses, 0);
  EXPECT_LE(WaitPolicyFor(2, 2).yield_for, std::chrono::microseconds(100));
  EXPECT_GE(WaitPolicyFor(8, 2).yield_for, milliseconds(1));
  EXPECT_LE(WaitPolicyFor(8, 2).yield_for, milliseconds(5));
  EXPECT_LE(WaitPolicyFor(8, 2).sleep_slice, milliseconds(10));
}

void PinToFirstCpu() {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  int first = 0;
  while (!CPU_ISSET(first, &mine)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

TEST(Waiting, SleepsWhereAYieldGivesTheCpuToAThreadThatComputes) {
  Place place;
  std::atomic<bool> over{false};
  std::thread busy([&] {
    PinToFirstCpu();
    while (!over.load()) {
    }
  });
  std::thread waiting([&] {
    PinToFirstCpu();
    const WaitPolicy wait_policy = {.yield_for = seconds(3600), .longest_yield = std::chrono::microseconds(100)};
    EXPECT_EQ(WaitUntil(
                  place.word, place.sleepers, [&] { return place.word.load() == 1; }, wait_policy,
                  Now() + seconds(3600), kContinue),
              WaitOutcome::kDone);
  });
  EXPECT_TRUE(SomebodySleeps(place));
  Publish(place.word, 1, place.sleepers);
  waiting.join();
  over = true;
  busy.join();
}

TEST(Waiting, IsOverAtOnceWhenItIsDone) {
  Place place;
  const auto never_called = [] { return false; };
  EXPECT_EQ(WaitUntil(
                place.word, place.sleepers, [] { return true; }, kSleepAtOnce, Now() - seconds(1), never_called),
            WaitOutcome::kDone);
  EXPECT_EQ(place.sleepers.load(), 0U);
}

TEST(Waiting, EndsAtTheDeadline) {
  Place place;
  const base::TimePoint begin = Now();
  const base::TimePoint deadline = begin + milliseconds(30);
  EXPECT_EQ(WaitUntil(
                place.word, place.sleepers, [] { return false; }, WaitPolicyFor(1, 1), deadline, kContinue),
            WaitOutcome::kTimedOut);
  EXPECT_GE(Now(), deadline);
  EXPECT_LT(Now() - begin, seconds(20));
  EXPECT_EQ(place.sleepers.load(), 0U);
}

TEST(Waiting, IsDoneWhenThatComesWithAFailure) {
  Place place;
  // Between two checks, the last member arrives, and the next call fails.
  const auto comes_and_fails = [&place] {
    place.word.store(1);
    return false;
  };
  EXPECT_EQ(
      WaitUntil(
          place.word, place.sleepers, [&] { return place.word.load() == 1; }, kSleepAtOnce, Now(), comes_and_fails),
      WaitOutcome::kDone);
}

TEST(Waiting, ChecksOnceMoreAtADeadlineThatIsOver) {
  Place place;
  int checks = 0;
  const auto check = [&checks] { return ++checks == 0; };
  EXPECT_EQ(WaitUntil(
                place.word, place.sleepers, [] { return false; }, kSleepAtOnce, Now() - seconds(1), check),
            WaitOutcome::kInterrupted);
  EXPECT_EQ(checks, 1);
}

TEST(Waiting, IsEndedByTheCheckBetweenSleeps) {
  Place place;
  WaitPolicy wait_policy = WaitPolicyFor(2, 1);
  wait_policy.sleep_slice = milliseconds(1);
  int checks = 0;
  const auto check = [&checks] { return ++checks < 3; };
  EXPECT_EQ(WaitUntil(
                place.word, place.sleepers, [] { return false; }, wait_policy, InAWhile(), check),
            WaitOutcome::kInterrupted);
  EXPECT_EQ(checks, 3);
}

TEST(Waiting, DoesNotRunTheCheckForEveryRing) {
  Place place;
  int checks = 0;
  const auto check = [&checks] { return ++checks > 0; };
  std::atomic<bool> over{false};
  std::thread ringer([&] {
    for (int i = 0; i < 200 && SomebodySleeps(place); ++i) Ring(place.word, place.sleepers);
    over.store(true);
    Ring(place.word, place.sleepers);
  });
  const auto done = [&over] { return over.load(); };
  EXPECT_EQ(WaitUntil(place.word, place.sleepers, done, kSleepAtOnce, InAWhile(), check), WaitOutcome::kDone);
  ringer.join();
  EXPECT_EQ(checks, 0);
}

TEST(Waiting, WakesEveryThreadThatSleeps) {
  Place place;
  std::vector<std::thread> threads;
  std::atomic<int> woken{0};
  int before = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto done = [&place] { return place.word.load(std::memory_order_acquire) == 7; };
      if (WaitUntil(place.word, place.sleepers, done, kSleepAtOnce, InAWhile(), kContinue) == WaitOutcome::kDone)
        ++woken;
    });
  }
  const base::TimePoint deadline = InAWhile();
  while (place.sleepers.load() < 4 && Now() < deadline) sched_yield();
  before = woken.load();
  const base::TimePoint rung = Now();
  Publish(place.word, 7, place.sleepers);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(before, 0);
  EXPECT_EQ(woken.load(), 4);
  EXPECT_LT(Now() - rung, seconds(20));
  EXPECT_EQ(place.sleepers.load(), 0U);
}

// Two sides that take turns, each asleep while the other works; the data is plain memory that the word guards.
void PingPong(Place& mine, Place& peer, std::uint64_t& data, bool first, int rounds, const WaitPolicy& wait_policy,
              bool* right) {
  *right = true;
  for (int i = 1; i <= rounds; ++i) {
    const auto turn = static_cast<std::uint32_t>(i);
    if (first) {
      data = static_cast<std::uint64_t>(i) * 3;
      Publish(mine.word, turn, mine.sleepers);
    }
    const auto done = [&peer, turn] { return peer.word.load(std::memory_order_acquire) == turn; };
    *right = *right &&
             WaitUntil(peer.word, peer.sleepers, done, wait_policy, InAWhile(), kContinue) == WaitOutcome::kDone &&
             data == static_cast<std::uint64_t>(i) * 3 + (first ? 1 : 0);
    if (!*right) return;
    if (!first) {
      ++data;
      Publish(mine.word, turn, mine.sleepers);
    }
  }
}

// Sleeps are not cut into slices: a lost wake lasts until the wait times out.
WaitPolicy Unsliced(WaitPolicy wait_policy) {
  wait_policy.sleep_slice = seconds(3600);
  return wait_policy;
}

TEST(Waiting, LosesNoWakeBetweenThreads) {
  for (const WaitPolicy& wait_policy :
       {Unsliced(kSleepAtOnce), Unsliced(WaitPolicyFor(2, 2)), Unsliced(WaitPolicyFor(2, 1))}) {
    Place places[2];
    std::uint64_t data = 0;
    bool right[2] = {false, false};
    std::thread other([&] { PingPong(places[1], places[0], data, false, 3000, wait_policy, &right[1]); });
    PingPong(places[0], places[1], data, true, 3000, wait_policy, &right[0]);
    other.join();
    EXPECT_TRUE(right[0] && right[1]);
  }
}

TEST(Waiting, LosesNoWakeBetweenProcesses) {
  SharedPlace places;
  auto* data = reinterpret_cast<std::uint64_t*>(&places[0] + 8);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  bool right = false;
  if (child == 0) {
    PingPong(places[1], places[0], *data, false, 3000, Unsliced(kSleepAtOnce), &right);
    _exit(right ? 0 : 1);
  }
  PingPong(places[0], places[1], *data, true, 3000, Unsliced(kSleepAtOnce), &right);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(right);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Waiting, GoesOnWhenASleeperWasKilled) {
  SharedPlace places;
  Place& place = places[0];
  const auto is_five = [&place] { return place.word.load(std::memory_order_acquire) == 5; };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto never = [] { return false; };
    _exit(static_cast<int>(WaitUntil(place.word, place.sleepers, never, kSleepAtOnce, InAWhile(), kContinue)));
  }
  ASSERT_TRUE(SomebodySleeps(place));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(place.sleepers.load(), 1U);

  std::thread waiter([&] {
    EXPECT_EQ(WaitUntil(place.word, place.sleepers, is_five, kSleepAtOnce, InAWhile(), kContinue), WaitOutcome::kDone);
  });
  const base::TimePoint deadline = InAWhile();
  while (place.sleepers.load() < 2 && Now() < deadline) sched_yield();
  Publish(place.word, 5, place.sleepers);
  waiter.join();
  EXPECT_EQ(place.sleepers.load(), 1U);
}

}  // namespace
}  // namespace fulldeck::collectives
