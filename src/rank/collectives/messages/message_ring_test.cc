#include "collectives/messages/message_ring.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace fulldeck::collectives {
namespace {

class MessageRingTest : public ::testing::Test {
 protected:
  MessageRingTest() : memory_(new MessageRing()) {}
  std::byte* memory() { return reinterpret_cast<std::byte*>(memory_.get()); }
  MessageRing& ring() { return *memory_; }

 private:
  std::unique_ptr<MessageRing> memory_;
};

std::vector<unsigned char> Numbers(std::size_t count, unsigned char first) {
  std::vector<unsigned char> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST_F(MessageRingTest, IsEmptyWhenAllIsZero) {
  RingWriter writer(memory());
  RingReader reader(memory());
  EXPECT_EQ(writer.Room(kRingCapacity), kRingCapacity);
  EXPECT_EQ(reader.Available(1), 0U);
}

TEST_F(MessageRingTest, ShowsBytesOnlyOnceTheyArePublished) {
  RingWriter writer(memory());
  RingReader reader(memory());
  writer.Put("abc", 3);
  EXPECT_EQ(reader.Available(1), 0U);
  writer.Publish();
  EXPECT_EQ(reader.Available(1), 3U);
  char text[4] = {};
  reader.Take(text, 3);
  EXPECT_STREQ(text, "abc");
  EXPECT_EQ(writer.Room(kRingCapacity), kRingCapacity - 3);
  EXPECT_FALSE(reader.Release());
  EXPECT_EQ(writer.Room(kRingCapacity), kRingCapacity);
}

TEST_F(MessageRingTest, WrapsRoundAndCountsPastFourGibibytes) {
  ring().written = ring().taken = (std::uint64_t{1} << 32) - 1000;
  RingWriter writer(memory());
  RingReader reader(memory());
  for (int i = 0; i < 20; ++i) {
    const auto sent = Numbers(99991, static_cast<unsigned char>(i));
    ASSERT_GE(writer.Room(sent.size()).value(), sent.size());
    writer.Put(sent.data(), sent.size());
    writer.Publish();
    ASSERT_EQ(reader.Available(sent.size()), sent.size());
    std::vector<unsigned char> came(sent.size());
    reader.Take(came.data(), came.size());
    reader.Release();
    ASSERT_EQ(came, sent);
  }
  EXPECT_GT(ring().taken.load(), std::uint64_t{1} << 32);
}

TEST_F(MessageRingTest, ShowsTheReaderThatTheWriterWaits) {
  RingWriter writer(memory());
  RingReader reader(memory());
  const auto sent = Numbers(kRingCapacity, 0);
  writer.Put(sent.data(), sent.size());
  writer.Publish();
  EXPECT_EQ(writer.RoomOrFlagWaiting(1), 0U);
  std::vector<unsigned char> came(100);
  ASSERT_EQ(reader.Available(1), kRingCapacity);
  reader.Take(came.data(), came.size());
  EXPECT_TRUE(reader.Release());
  EXPECT_EQ(writer.RoomOrFlagWaiting(1), 100U);
  reader.Take(came.data(), came.size());
  EXPECT_FALSE(reader.Release());
}

TEST_F(MessageRingTest, FindsCountersThatCannotBe) {
  RingWriter writer(memory());
  RingReader reader(memory());
  writer.Put("abcd", 4);
  writer.Publish();
  ring().taken = 5;
  EXPECT_FALSE(writer.Room(kRingCapacity));
  EXPECT_FALSE(writer.RoomOrFlagWaiting(kRingCapacity));
  ring().taken = 0;

  ring().written = kRingCapacity + 1;
  EXPECT_FALSE(reader.Available(1));
  ring().written = ~std::uint64_t{0};
  EXPECT_FALSE(reader.Available(1));
  ring().written = 4;
  EXPECT_EQ(reader.Available(1), 4U);
  ring().written = 3;
  EXPECT_FALSE(reader.Available(5));
}

TEST_F(MessageRingTest, CarriesAStreamBetweenTwoThreads) {
  constexpr std::uint64_t kBytes = 8 << 20;
  std::thread sender([this] {
    RingWriter writer(memory());
    for (std::uint64_t sent = 0, step = 1; sent < kBytes; ++step) {
      const std::uint64_t wanted = std::min(kBytes - sent, step * 7 % 50000 + 1);
      if (writer.RoomOrFlagWaiting(wanted).value_or(0) < wanted) {
        std::this_thread::yield();
        continue;
      }
      const auto part = Numbers(wanted, static_cast<unsigned char>(sent));
      writer.Put(part.data(), part.size());
      writer.Publish();
      sent += wanted;
    }
  });
  RingReader reader(memory());
  bool right = true;
  std::vector<unsigned char> part(kRingCapacity);
  for (std::uint64_t came = 0; came < kBytes && right;) {
    const auto available = reader.Available(1);
    right = available.has_value();
    if (!right || *available == 0) {
      std::this_thread::yield();
      continue;
    }
    reader.Take(part.data(), *available);
    reader.Release();
    for (std::uint64_t i = 0; i < *available; ++i) right = right && part[i] == static_cast<unsigned char>(came + i);
    came += *available;
  }
  sender.join();
  EXPECT_TRUE(right);
}

}  // namespace
}  // namespace fulldeck::collectives
