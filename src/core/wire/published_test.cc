#include "wire/published.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace fulldeck::wire {
namespace {

// Consistent if every word follows from the first.
struct Value {
  std::array<std::uint64_t, 31> words;

  static Value Of(std::uint64_t number) {
    Value value{};
    for (std::size_t i = 0; i < value.words.size(); ++i) value.words[i] = number * (i + 1);
    return value;
  }
  bool Sound() const { return Of(words[0]).words == words; }
};

// In memory that a forked child shares.
class PublishedValue : public ::testing::Test {
 protected:
  PublishedValue()
      : memory_(mmap(nullptr, sizeof(Published<Value>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        value_(*static_cast<Published<Value>*>(memory_)) {}
  ~PublishedValue() override { munmap(memory_, sizeof(Published<Value>)); }

  // Reads until the writer's number reaches `number`, or a deadline passes. Expects that every value is consistent and
  // that the numbers never decrease.
  void ExpectSoundReadingsUntil(std::uint64_t number) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    std::uint64_t last = 0;
    while (last < number) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the writer is at " << last;
      Reading reading{};
      const auto read = value_.Read(&reading);
      ASSERT_NE(reading, Reading::kDamaged);
      ASSERT_EQ(read.has_value(), reading == Reading::kValue);
      if (!read) continue;
      ASSERT_TRUE(read->Sound());
      ASSERT_GE(read->words[0], last);
      last = read->words[0];
    }
  }

  void* memory_;
  Published<Value>& value_;
};

TEST_F(PublishedValue, IsAbsentBeforeItIsFirstWritten) {
  Reading reading{};
  EXPECT_FALSE(value_.Read(&reading));
  EXPECT_EQ(reading, Reading::kNeverWritten);
  EXPECT_EQ(value_.LastWritten().words[30], 0U);
}

TEST_F(PublishedValue, IsWhatWasWrittenLast) {
  Reading reading{};
  for (std::uint64_t number = 1; number < 10; ++number) {
    value_.Write(Value::Of(number));
    EXPECT_EQ(value_.LastWritten().words[30], number * 31);
    const auto read = value_.Read(&reading);
    ASSERT_TRUE(read);
    EXPECT_EQ(reading, Reading::kValue);
    EXPECT_EQ(read->words, Value::Of(number).words);
  }
}

TEST_F(PublishedValue, IsNeverSeenHalfWrittenByOtherThreads) {
  constexpr std::uint64_t kWrites = 200'000;
  std::thread writer([this] {
    for (std::uint64_t number = 1; number <= kWrites; ++number) value_.Write(Value::Of(number));
  });
  std::thread other_reader([this] { ExpectSoundReadingsUntil(kWrites); });
  ExpectSoundReadingsUntil(kWrites);
  writer.join();
  other_reader.join();
}

TEST_F(PublishedValue, IsNeverSeenHalfWrittenByOtherProcesses) {
  constexpr std::uint64_t kWrites = 200'000;
  const pid_t writer = fork();
  if (writer == 0) {
    for (std::uint64_t number = 1; number <= kWrites; ++number) value_.Write(Value::Of(number));
    _exit(0);
  }
  ExpectSoundReadingsUntil(kWrites);
  kill(writer, SIGKILL);
  EXPECT_EQ(waitpid(writer, nullptr, 0), writer);
}

TEST_F(PublishedValue, StaysReadableWhenTheWriterIsKilledAtAnyMoment) {
  std::uint64_t last = 0;
  for (int i = 0; i < 40; ++i) {
    const pid_t writer = fork();
    if (writer == 0) {
      // The next writer continues where the killed one stopped.
      for (std::uint64_t number = value_.LastWritten().words[0] + 1;; ++number) value_.Write(Value::Of(number));
    }
    ExpectSoundReadingsUntil(last + 1);
    kill(writer, SIGKILL);
    ASSERT_EQ(waitpid(writer, nullptr, 0), writer);
    Reading reading{};
    const auto read = value_.Read(&reading);
    ASSERT_TRUE(read) << "after writer " << i;
    ASSERT_TRUE(read->Sound());
    last = read->words[0];
  }
}

TEST_F(PublishedValue, KeepsTheOldValueWhileTheNextIsHalfWrittenAndTakesTheNextWriteAsEver) {
  for (std::uint64_t number = 1; number < 5; ++number) {
    value_.Write(Value::Of(number));
    // What a writer that dies in the middle leaves: half of the copy that readers do not use.
    const std::size_t spare = (number + 1) % 2;
    std::memset(static_cast<char*>(memory_) + 8 + spare * sizeof(Value), 0xee, sizeof(Value) / 2);
    Reading reading{};
    const auto read = value_.Read(&reading);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->words, Value::Of(number).words);
    EXPECT_EQ(value_.LastWritten().words, Value::Of(number).words);
  }
}

}  // namespace
}  // namespace fulldeck::wire
