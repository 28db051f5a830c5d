#include "collectives/messages/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "collectives/messages/message_ring.h"

namespace fulldeck::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

using Data = std::vector<unsigned char>;

base::TimePoint In(base::Duration duration) {
  return std::chrono::steady_clock::now() + duration;
}
base::TimePoint InAWhile() {
  return In(seconds(120));
}

// The shared memory of a group, for ranks that are threads and for ranks that are forked processes.
class World {
 public:
  explicit World(int size) : size_(size) {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~World() { munmap(memory_, bytes()); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int size() const { return size_; }

  Messages::Wiring Wiring(int rank) {
    Messages::Wiring wiring;
    wiring.rank = rank;
    wiring.size = size_;
    wiring.group_name = "world";
    for (int pair = 0; pair < size_ * size_; ++pair) wiring.rings.push_back(memory_ + pair * kMessageRingBytes);
    for (int i = 0; i < size_; ++i) wiring.doorbells.push_back(reinterpret_cast<Doorbell*>(bells() + i * 64));
    wiring.health = [](int) { return Status(); };
    wiring.poison = [](const Status&) {};
    return wiring;
  }
  std::unique_ptr<Messages> Rank(int rank) { return std::make_unique<Messages>(Wiring(rank)); }

  MessageRing& Ring(int from, int to) {
    return *reinterpret_cast<MessageRing*>(memory_ + (from * size_ + to) * kMessageRingBytes);
  }

  // Each rank is a thread of this process, over one mapping.
  template <class Body>
  void RunThreads(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &body] {
        Messages messages(Wiring(rank));
        body(rank, messages);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Each rank is a process; a failure in one shows as its exit code.
  template <class Body>
  void RunProcesses(Body body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < size_; ++rank) {
      std::fflush(stdout);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        {
          Messages messages(Wiring(rank));
          body(rank, messages);
        }
        std::fflush(stdout);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = -1;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a rank failed: status " << status;
    }
  }

 private:
  std::uint64_t rings_bytes() const { return static_cast<std::uint64_t>(size_ * size_) * kMessageRingBytes; }
  std::uint64_t bytes() const { return rings_bytes() + static_cast<std::uint64_t>(size_) * 64; }
  std::byte* bells() { return memory_ + rings_bytes(); }

  int size_;
  std::byte* memory_ = nullptr;
};

// Contents that differ for every message and reveal moved or lost bytes.
Data Filled(std::size_t bytes, unsigned seed) {
  Data data(bytes);
  std::uint32_t value = seed * 2654435761U + 1;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (i % 4 == 0) value = value * 1664525U + 1013904223U;
    data[i] = static_cast<unsigned char>(value >> (i % 4 * 8));
  }
  return data;
}

Status Send(Messages& messages, const Data& data, int to, std::uint64_t tag, base::TimePoint deadline = InAWhile()) {
  return messages.Wait(*messages.PostSend(data.data(), data.size(), to, tag), deadline);
}

Data Received(Messages& messages, std::size_t bytes, int from, std::uint64_t tag, int* came_from = nullptr) {
  Data data(bytes);
  const auto receive = messages.PostReceive(data.data(), bytes, from, tag);
  const Status status = messages.Wait(*receive, InAWhile());
  EXPECT_TRUE(status.ok()) << status.text();
  if (came_from != nullptr) *came_from = receive->peer();
  return data;
}

// Both ranks in one thread: nothing happens that the test does not do itself.
class TwoRanks : public ::testing::Test {
 protected:
  World world_{2};
  std::unique_ptr<Messages> left_ = world_.Rank(0);
  std::unique_ptr<Messages> right_ = world_.Rank(1);
};

TEST_F(TwoRanks, PassASmallMessageAtOnce) {
  const Data sent = Filled(100, 1);
  const auto send = left_->PostSend(sent.data(), sent.size(), 1, 7);
  EXPECT_TRUE(send->done());
  EXPECT_TRUE(send->status().ok());
  Data came(100);
  const auto receive = right_->PostReceive(came.data(), came.size(), 0, 7);
  EXPECT_TRUE(receive->done());
  EXPECT_EQ(receive->peer(), 0);
  EXPECT_EQ(came, sent);
  EXPECT_EQ(left_->pending(), 0U);
  EXPECT_EQ(right_->pending(), 0U);
}

TEST_F(TwoRanks, KeepTheOrderOfOneTag) {
  for (unsigned i = 0; i < 50; ++i) ASSERT_TRUE(Send(*left_, Filled(16, i), 1, 3).ok());
  for (unsigned i = 0; i < 50; ++i) ASSERT_EQ(Received(*right_, 16, 0, 3), Filled(16, i));
}

TEST_F(TwoRanks, ReceiveTagsInAnotherOrder) {
  for (unsigned tag = 0; tag < 9; ++tag) ASSERT_TRUE(Send(*left_, Filled(20 + tag, tag), 1, tag).ok());
  for (unsigned tag = 9; tag-- > 0;) ASSERT_EQ(Received(*right_, 20 + tag, 0, tag), Filled(20 + tag, tag));
}

TEST_F(TwoRanks, GiveAMessageToTheOldestReceiveThatItFits) {
  Data first(8);
  Data other(8);
  Data second(8);
  const auto any = right_->PostReceive(first.data(), 8, FULLDECK_ANY_SOURCE, 5);
  const auto with_other_tag = right_->PostReceive(other.data(), 8, 0, 6);
  const auto from_left = right_->PostReceive(second.data(), 8, 0, 5);
  for (unsigned i = 0; i < 2; ++i) ASSERT_TRUE(Send(*left_, Filled(8, i), 1, 5).ok());
  while (right_->Progress()) {
  }
  EXPECT_TRUE(any->done());
  EXPECT_TRUE(from_left->done());
  EXPECT_FALSE(with_other_tag->done());
  EXPECT_EQ(first, Filled(8, 0));
  EXPECT_EQ(second, Filled(8, 1));
  EXPECT_EQ(any->peer(), 0);
  EXPECT_EQ(right_->pending(), 1U);
}

TEST_F(TwoRanks, PassMessagesOfNoBytes) {
  ASSERT_TRUE(left_->PostSend(nullptr, 0, 1, 1)->done());
  ASSERT_TRUE(left_->PostSend(nullptr, 0, 1, 2)->done());
  EXPECT_TRUE(right_->PostReceive(nullptr, 0, 0, 2)->done());
  EXPECT_TRUE(right_->PostReceive(nullptr, 0, 0, 1)->done());
  const auto waits = right_->PostReceive(nullptr, 0, 0, 1);
  EXPECT_FALSE(waits->done());
  ASSERT_TRUE(left_->PostSend(nullptr, 0, 1, 1)->done());
  EXPECT_TRUE(right_->Progress());
  EXPECT_TRUE(waits->done());
}

TEST_F(TwoRanks, LeaveUnaskedMessagesWithTheSender) {
  const Data sent = Filled(4 << 20, 9);
  const auto send = left_->PostSend(sent.data(), sent.size(), 1, 1);
  for (int i = 0; i < 100; ++i) {
    left_->Progress();
    right_->Progress();
  }
  EXPECT_FALSE(send->done());
  EXPECT_LE(world_.Ring(0, 1).written.load(), kRingCapacity);

  // Now a receive for another message of that sender is open, so it is set aside.
  Data small(1);
  const auto receive = right_->PostReceive(small.data(), 1, 0, 2);
  for (int i = 0; i < 1000 && !send->done(); ++i) {
    left_->Progress();
    right_->Progress();
  }
  EXPECT_TRUE(send->done());
  EXPECT_FALSE(receive->done());
  EXPECT_EQ(Received(*right_, sent.size(), 0, 1), sent);
}

TEST_F(TwoRanks, FinishInPlaceWhatHadBegunToBeSetAside) {
  const Data big = Filled(1 << 20, 5);
  const auto send = left_->PostSend(big.data(), big.size(), 1, 1);
  Data small(4);
  const auto other = right_->PostReceive(small.data(), small.size(), 0, 2);  // takes what is in the ring
  ASSERT_FALSE(send->done());
  Data came(big.size());
  const auto receive = right_->PostReceive(came.data(), came.size(), 0, 1);
  for (int i = 0; i < 1000 && !receive->done(); ++i) {
    left_->Progress();
    right_->Progress();
  }
  ASSERT_TRUE(receive->done());
  EXPECT_EQ(came, big);
  EXPECT_FALSE(other->done());
  ASSERT_TRUE(Send(*left_, Filled(4, 6), 1, 2).ok());
  right_->Progress();
  EXPECT_TRUE(other->done());
}

TEST_F(TwoRanks, SendOneBehindTheOther) {
  const Data big = Filled(1 << 20, 5);
  const Data small = Filled(10, 6);
  const auto first = left_->PostSend(big.data(), big.size(), 1, 1);
  const auto second = left_->PostSend(small.data(), small.size(), 1, 1);
  EXPECT_FALSE(first->done());
  EXPECT_FALSE(second->done());
  EXPECT_EQ(left_->pending(), 2U);
  Data big_came(big.size());
  Data small_came(small.size());
  const auto first_receive = right_->PostReceive(big_came.data(), big_came.size(), 0, 1);
  const auto second_receive = right_->PostReceive(small_came.data(), small_came.size(), 0, 1);
  for (int i = 0; i < 1000 && !second_receive->done(); ++i) {
    left_->Progress();
    right_->Progress();
  }
  EXPECT_TRUE(first->done() && second->done() && first_receive->done());
  EXPECT_EQ(big_came, big);
  EXPECT_EQ(small_came, small);
}

TEST_F(TwoRanks, RefuseImpossibleArgumentsAndStayUsable) {
  char byte = 0;
  const auto expect = [](const std::shared_ptr<MessageOperation>& operation, const char* text) {
    ASSERT_TRUE(operation->done());
    EXPECT_EQ(operation->status().code(), FULLDECK_ERROR_ARGUMENT);
    EXPECT_THAT(operation->status().text(), HasSubstr(text));
    EXPECT_THAT(operation->status().text(), HasSubstr("rank 0 of group world"));
  };
  expect(left_->PostSend(&byte, 1, 0, 1), "send to rank 0: a rank cannot exchange messages with itself");
  expect(left_->PostReceive(&byte, 1, 0, 1), "receive from rank 0: a rank cannot");
  expect(left_->PostSend(&byte, 1, 2, 1), "send to rank 2: the group has ranks 0 to 1");
  expect(left_->PostSend(&byte, 1, -1, 1), "send to rank -1: the group has ranks 0 to 1");
  expect(left_->PostReceive(&byte, 1, -2, 1), "receive from rank -2: the group has");
  expect(left_->PostSend(nullptr, 5, 1, 1), "5 bytes at a null pointer");
  expect(left_->PostReceive(nullptr, 1, 1, 1), "1 byte at a null pointer");
  expect(left_->PostSend(&byte, ~std::uint64_t{0}, 1, 1), "18446744073709551615 bytes cannot be");
  EXPECT_EQ(left_->pending(), 0U);
  EXPECT_EQ(Send(*left_, Filled(3, 1), 1, 1).code(), FULLDECK_OK);
}

TEST(Messages, FromAnySourceAreRefusedWhereThereIsNoOtherRank) {
  World world(1);
  const auto alone = world.Rank(0);
  char byte = 0;
  const auto receive = alone->PostReceive(&byte, 1, FULLDECK_ANY_SOURCE, 1);
  ASSERT_TRUE(receive->done());
  EXPECT_EQ(receive->status().code(), FULLDECK_ERROR_ARGUMENT);
  EXPECT_THAT(receive->status().text(), HasSubstr("no other rank"));
  EXPECT_FALSE(alone->Progress());
}

// ---- failures ----

class FailingRanks : public ::testing::Test {
 protected:
  FailingRanks() {
    Messages::Wiring wiring = world_.Wiring(1);
    wiring.poison = [this](const Status& status) { poisoned_.push_back(status); };
    wiring.health = [this](int) {
      ++health_checks_;
      return health_;
    };
    left_ = world_.Rank(0);
    right_ = std::make_unique<Messages>(wiring);
  }

  void ExpectPoisoned(int code) {
    ASSERT_EQ(poisoned_.size(), 1U);
    EXPECT_EQ(poisoned_[0].code(), code);
    char byte = 0;
    const auto later = right_->PostSend(&byte, 1, 0, 1);
    ASSERT_TRUE(later->done());
    EXPECT_EQ(later->status().text(), poisoned_[0].text());
    const auto receive = right_->PostReceive(&byte, 1, 0, 1);
    ASSERT_TRUE(receive->done());
    EXPECT_EQ(receive->status().code(), code);
    EXPECT_FALSE(right_->Progress());
    EXPECT_EQ(right_->pending(), 0U);
  }

  World world_{3};
  std::vector<Status> poisoned_;
  Status health_;
  int health_checks_ = 0;
  std::unique_ptr<Messages> left_;
  std::unique_ptr<Messages> right_;
  Data data_ = Data(8192);
};

TEST_F(FailingRanks, NameSenderTagAndBothLengthsOfAMismatch) {
  const auto bystander = right_->PostReceive(data_.data() + 4096, 1, 2, 1);
  const auto receive = right_->PostReceive(data_.data(), 4096, 0, 7);
  ASSERT_TRUE(Send(*left_, Filled(64, 1), 1, 7).ok());
  const Status status = right_->Wait(*receive, InAWhile());
  EXPECT_EQ(status.code(), FULLDECK_ERROR_MISMATCH);
  EXPECT_EQ(
      status.text(),
      "rank 1 of group world: rank 0 sent 64 bytes with tag 7, and the receive for it takes 4096 bytes: both must "
      "name the same length");
  EXPECT_TRUE(bystander->done());
  EXPECT_EQ(bystander->status().code(), FULLDECK_ERROR_MISMATCH);
  EXPECT_EQ(data_, Data(8192));
  ExpectPoisoned(FULLDECK_ERROR_MISMATCH);
}

TEST_F(FailingRanks, FindAMismatchWithAMessageThatWasSetAside) {
  ASSERT_TRUE(Send(*left_, Filled(4097, 1), 1, 7).ok());
  const auto other = right_->PostReceive(data_.data(), 1, 0, 8);
  const auto receive = right_->PostReceive(data_.data(), 4096, FULLDECK_ANY_SOURCE, 7);
  ASSERT_TRUE(receive->done());
  EXPECT_THAT(receive->status().text(), HasSubstr("rank 0 sent 4097 bytes with tag 7"));
  EXPECT_TRUE(other->done());
  EXPECT_EQ(data_, Data(8192));
  ExpectPoisoned(FULLDECK_ERROR_MISMATCH);
}

TEST_F(FailingRanks, FindThatAMessageOfNoBytesMatchesAReceiveOfSome) {
  ASSERT_TRUE(Send(*left_, Data(), 1, 7).ok());
  const auto receive = right_->PostReceive(data_.data(), 1, 0, 7);
  ASSERT_TRUE(receive->done());
  EXPECT_THAT(receive->status().text(),
              HasSubstr("rank 0 sent 0 bytes with tag 7, and the receive for it takes 1 byte:"));
  ExpectPoisoned(FULLDECK_ERROR_MISMATCH);
}

TEST_F(FailingRanks, EndWithTheResultOfTheHealthCheck) {
  const auto receive = right_->PostReceive(data_.data(), 16, 0, 7);
  const auto other = right_->PostReceive(data_.data(), 16, FULLDECK_ANY_SOURCE, 8);
  const Data big(1 << 20);
  const auto send = right_->PostSend(big.data(), big.size(), 2, 8);
  EXPECT_EQ(health_checks_, 0);
  health_ = Status(FULLDECK_ERROR_PEER_LOST, "rank 0 is gone");
  const base::TimePoint begin = In(seconds(0));
  EXPECT_EQ(right_->Wait(*receive, InAWhile()).text(), "rank 0 is gone");
  EXPECT_LT(In(seconds(0)) - begin, seconds(30));
  for (const auto& operation : {other, send}) {
    ASSERT_TRUE(operation->done());
    EXPECT_EQ(operation->status().code(), FULLDECK_ERROR_PEER_LOST);
  }
  EXPECT_TRUE(poisoned_.empty());
  EXPECT_EQ(right_->PostReceive(data_.data(), 16, 2, 7)->status().text(), "rank 0 is gone");
}

TEST_F(FailingRanks, NoticeTheDeadWhenTheyOnlyPoll) {
  const auto receive = right_->PostReceive(data_.data(), 16, 0, 7);
  health_ = Status(FULLDECK_ERROR_PEER_LOST, "rank 0 is gone");
  for (const base::TimePoint end = InAWhile(); !receive->done() && In(seconds(0)) < end;) right_->Progress();
  ASSERT_TRUE(receive->done());
  EXPECT_EQ(receive->status().text(), "rank 0 is gone");
}

TEST_F(FailingRanks, StillReceiveWhatASenderSentBeforeItsEnd) {
  const auto receive = right_->PostReceive(data_.data(), 16, 0, 7);
  const auto missing = right_->PostReceive(data_.data(), 16, 0, 9);
  health_ = Status(FULLDECK_ERROR_PEER_LOST, "rank 0 is gone");
  ASSERT_TRUE(Send(*left_, Filled(16, 1), 1, 7).ok());
  EXPECT_TRUE(right_->Wait(*receive, InAWhile()).ok());
  EXPECT_EQ(right_->Wait(*missing, InAWhile()).code(), FULLDECK_ERROR_PEER_LOST);
}

TEST_F(FailingRanks, CheckHealthOnlyBetweenSleeps) {
  for (unsigned i = 0; i < 200; ++i) {
    ASSERT_TRUE(Send(*left_, Filled(1000, i), 1, 7).ok());
    ASSERT_EQ(Received(*right_, 1000, 0, 7), Filled(1000, i));
  }
  EXPECT_EQ(health_checks_, 0);
}

TEST_F(FailingRanks, ReportWhatWasSetAsideWhenAReceiveTimesOut) {
  for (unsigned i = 0; i < 2; ++i) ASSERT_TRUE(Send(*left_, Filled(16 + i, i), 1, 3 + i).ok());
  const auto receive = right_->PostReceive(data_.data(), 4096, 0, 7);
  const Status status = right_->Wait(*receive, In(milliseconds(40)));
  EXPECT_EQ(status.code(), FULLDECK_ERROR_TIMEOUT);
  EXPECT_THAT(status.text(),
              HasSubstr("rank 1 of group world: receive from rank 0, tag 7, 4096 bytes: nothing came in 0."));
  EXPECT_THAT(status.text(), HasSubstr(" s; set aside from rank 0: tag 3 (16 bytes), tag 4 (17 bytes)."));
  EXPECT_GE(health_checks_, 1);
  ExpectPoisoned(FULLDECK_ERROR_TIMEOUT);
}

TEST_F(FailingRanks, ListOnlyAFewOfThoseSetAside) {
  for (unsigned i = 0; i < 9; ++i) ASSERT_TRUE(Send(*left_, Filled(1, i), 1, 100 + i).ok());
  const auto receive = right_->PostReceive(data_.data(), 4, FULLDECK_ANY_SOURCE, 7);
  const Status status = right_->Wait(*receive, In(seconds(-1)));
  EXPECT_THAT(status.text(),
              HasSubstr("receive from any rank, tag 7, 4 bytes: nothing came in 0.0 s; set aside from rank 0: "
                        "tag 100 (1 byte), tag 101 (1 byte), tag 102 (1 byte), tag 103 (1 byte) and 5 more."));
}

TEST_F(FailingRanks, ReportHowMuchOfAMessageCame) {
  const Data big = Filled(1 << 20, 1);
  const auto send = left_->PostSend(big.data(), big.size(), 1, 7);
  Data came(big.size());
  const auto receive = right_->PostReceive(came.data(), came.size(), 0, 7);
  const Status status = right_->Wait(*receive, In(milliseconds(20)));
  EXPECT_EQ(status.code(), FULLDECK_ERROR_TIMEOUT);
  EXPECT_THAT(status.text(), HasSubstr("receive from rank 0, tag 7, 1048576 bytes: only "));
  EXPECT_THAT(status.text(), HasSubstr("rank 0 has begun to send it"));
  ExpectPoisoned(FULLDECK_ERROR_TIMEOUT);
  EXPECT_FALSE(send->done());
}

TEST_F(FailingRanks, ReportThatASendWasNotTaken) {
  const Data big = Filled(1 << 20, 1);
  const auto first = right_->PostSend(big.data(), big.size(), 0, 7);
  const auto second = right_->PostSend(big.data(), 5, 0, 8);
  const Status status = right_->Wait(*second, In(milliseconds(20)));
  EXPECT_EQ(status.code(), FULLDECK_ERROR_TIMEOUT);
  EXPECT_THAT(status.text(),
              HasSubstr("rank 1 of group world: send to rank 0, tag 8, 5 bytes: rank 0 did not take it in 0."));
  EXPECT_THAT(status.text(), HasSubstr("0 bytes went out, 1 older send to it waits too"));
  EXPECT_TRUE(first->done());
  ExpectPoisoned(FULLDECK_ERROR_TIMEOUT);
}

TEST_F(FailingRanks, FailWhereNoMemoryIsLeftToSetAside) {
  // Only as much of it is read as fits into the ring.
  const Data part = Filled(kRingCapacity, 1);
  const auto send = left_->PostSend(part.data(), std::uint64_t{1} << 50, 1, 7);
  ASSERT_FALSE(send->done());
  const auto receive = right_->PostReceive(data_.data(), 4, 0, 8);
  ASSERT_TRUE(receive->done());
  EXPECT_EQ(receive->status().code(), FULLDECK_ERROR_SYSTEM);
  EXPECT_THAT(receive->status().text(),
              HasSubstr("no memory to set aside a message from rank 0, tag 7, 1125899906842624 bytes"));
  ExpectPoisoned(FULLDECK_ERROR_SYSTEM);
}

TEST_F(FailingRanks, FindAHeadThatIsNone) {
  const auto receive = right_->PostReceive(data_.data(), 16, 0, 7);
  world_.Ring(0, 1).written = sizeof(MessageHead);
  EXPECT_EQ(right_->Wait(*receive, InAWhile()).code(), FULLDECK_ERROR_SYSTEM);
  EXPECT_THAT(receive->status().text(), HasSubstr("messages from rank 0 to rank 1 is damaged"));
  ExpectPoisoned(FULLDECK_ERROR_SYSTEM);
}

TEST_F(FailingRanks, FindALengthThatCannotBe) {
  ASSERT_TRUE(Send(*left_, Filled(16, 1), 1, 7).ok());
  const MessageHead head{kMessageMagic, 0, 7, ~std::uint64_t{0}};
  std::memcpy(world_.Ring(0, 1).data, &head, sizeof head);
  const auto receive = right_->PostReceive(data_.data(), 16, 0, 7);
  EXPECT_EQ(receive->status().code(), FULLDECK_ERROR_SYSTEM);
  ExpectPoisoned(FULLDECK_ERROR_SYSTEM);
}

TEST_F(FailingRanks, FindAMessageThatComesTwice) {
  ASSERT_TRUE(Send(*left_, Data(), 1, 7).ok());
  ASSERT_TRUE(Send(*left_, Data(), 1, 7).ok());
  const MessageHead head{kMessageMagic, 0, 7, 0};
  std::memcpy(world_.Ring(0, 1).data + sizeof head, &head, sizeof head);
  EXPECT_TRUE(right_->PostReceive(nullptr, 0, 0, 7)->status().ok());
  const auto receive = right_->PostReceive(nullptr, 0, 0, 7);
  EXPECT_THAT(receive->status().text(), HasSubstr("message 0 came where 1 was due"));
  ExpectPoisoned(FULLDECK_ERROR_SYSTEM);
}

TEST_F(FailingRanks, FindCountersThatCannotBe) {
  const auto receive = right_->PostReceive(data_.data(), 16, 0, 7);
  const auto send = right_->PostSend(data_.data(), data_.size(), 2, 1);
  ASSERT_TRUE(send->done());
  world_.Ring(0, 1).written = kRingCapacity + 1;
  EXPECT_EQ(right_->Wait(*receive, InAWhile()).code(), FULLDECK_ERROR_SYSTEM);
  EXPECT_THAT(receive->status().text(), HasSubstr("the count of bytes is impossible"));
  ExpectPoisoned(FULLDECK_ERROR_SYSTEM);
}

TEST_F(FailingRanks, FindThatMoreWasTakenThanSent) {
  world_.Ring(1, 0).taken = 1 << 30;
  const Data big(1 << 20);
  const auto send = right_->PostSend(big.data(), big.size(), 0, 1);
  ASSERT_TRUE(send->done());
  EXPECT_THAT(send->status().text(),
              HasSubstr("messages from rank 1 to rank 0 is damaged (more was taken than was sent)"));
  ExpectPoisoned(FULLDECK_ERROR_SYSTEM);
}

TEST_F(FailingRanks, EndWhatIsUnderWayWhenTheyLeave) {
  const auto receive = right_->PostReceive(data_.data(), 16, 0, 7);
  right_.reset();
  ASSERT_TRUE(receive->done());
  EXPECT_EQ(receive->status().code(), FULLDECK_ERROR_ABORTED);
}

TEST(Messages, EndWithinASecondWhenTheirPeerIsKilled) {
  World world(2);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Dies in the middle of a message.
    const auto messages = world.Rank(1);
    const Data big(1 << 20);
    messages->PostSend(big.data(), big.size(), 0, 7);
    raise(SIGKILL);
  }
  Messages::Wiring wiring = world.Wiring(0);
  bool reaped = false;
  wiring.health = [&reaped, child](int) {
    if (!reaped) reaped = waitpid(child, nullptr, WNOHANG) == child;
    return reaped ? Status(FULLDECK_ERROR_PEER_LOST, "rank 1 died") : Status();
  };
  Messages messages(wiring);
  Data came(1 << 20);
  const auto receive = messages.PostReceive(came.data(), came.size(), 1, 7);
  EXPECT_EQ(messages.Wait(*receive, InAWhile()).text(), "rank 1 died");
  EXPECT_TRUE(reaped);
}

// ---- many concurrent operations ----

void PlayPingPong(int rank, Messages& messages) {
  constexpr unsigned kRounds = 1500;
  const int peer = 1 - rank;
  for (unsigned i = 0; i < kRounds; ++i) {
    const std::size_t bytes = i % 50;
    if (rank == 0) {
      ASSERT_TRUE(Send(messages, Filled(bytes, i), peer, i).ok());
    }
    ASSERT_EQ(Received(messages, bytes, peer, i), Filled(bytes, rank == 0 ? i + 1 : i));
    if (rank == 1) {
      ASSERT_TRUE(Send(messages, Filled(bytes, i + 1), peer, i).ok());
    }
  }
}

TEST(Messages, GoForthAndBackBetweenThreads) {
  World(2).RunThreads(PlayPingPong);
}
TEST(Messages, GoForthAndBackBetweenProcesses) {
  World(2).RunProcesses(PlayPingPong);
}

// Every rank sends a lot to every other rank, with the receives posted before, after or between the sends.
void ExchangeLargeMessages(int rank, Messages& messages, int size) {
  constexpr std::size_t kBytes = (2 << 20) + 13;
  std::vector<std::shared_ptr<MessageOperation>> operations;
  std::vector<Data> sent(static_cast<std::size_t>(size));
  std::vector<Data> came(static_cast<std::size_t>(size));
  const auto seed = [size](int from, int to) { return static_cast<unsigned>(from * size + to); };
  const auto receive_from = [&](int peer) {
    Data& data = came[static_cast<std::size_t>(peer)];
    data.resize(kBytes);
    operations.push_back(messages.PostReceive(data.data(), kBytes, peer, 1));
  };
  const auto send_to = [&](int peer) {
    Data& data = sent[static_cast<std::size_t>(peer)];
    data = Filled(kBytes, seed(rank, peer));
    operations.push_back(messages.PostSend(data.data(), kBytes, peer, 1));
  };
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    if (rank % 2 == 0) receive_from(peer);
    send_to(peer);
    if (rank % 2 == 1) receive_from(peer);
  }
  for (const auto& operation : operations) {
    const Status status = messages.Wait(*operation, InAWhile());
    ASSERT_TRUE(status.ok()) << status.text();
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      ASSERT_EQ(came[static_cast<std::size_t>(peer)], Filled(kBytes, seed(peer, rank)));
    }
  }
}

TEST(Messages, LargeOnesCrossBetweenThreads) {
  World world(3);
  world.RunThreads([](int rank, Messages& messages) { ExchangeLargeMessages(rank, messages, 3); });
}
TEST(Messages, LargeOnesCrossBetweenProcesses) {
  World world(3);
  world.RunProcesses([](int rank, Messages& messages) { ExchangeLargeMessages(rank, messages, 3); });
}

// Many gibibytes of address space, backed by the same few mebibytes of memory.
class RepeatedMemory {
 public:
  static constexpr std::uint64_t kStep = 32 << 20;
  explicit RepeatedMemory(std::uint64_t steps) : bytes_(steps * kStep) {
    const int file = memfd_create("fulldeck-test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file, kStep), 0);
    void* room = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(room, MAP_FAILED);
    data_ = static_cast<unsigned char*>(room);
    for (std::uint64_t at = 0; at < bytes_; at += kStep) {
      EXPECT_NE(mmap(data_ + at, kStep, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0),
                MAP_FAILED);
    }
    close(file);
  }
  ~RepeatedMemory() { munmap(data_, bytes_); }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;
  unsigned char* data() { return data_; }

 private:
  std::uint64_t bytes_;
  unsigned char* data_ = nullptr;
};

TEST(Messages, MayBeLongerThanFourGibibytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "takes too long and too much shadow memory with a sanitizer";
#endif
  constexpr std::uint64_t kSteps = 129;
  constexpr std::uint64_t kBytes = 128 * RepeatedMemory::kStep + 12345;
  RepeatedMemory sent(kSteps);
  RepeatedMemory came(kSteps);
  const Data step = Filled(RepeatedMemory::kStep, 77);
  std::memcpy(sent.data(), step.data(), step.size());
  World world(2);
  const auto left = world.Rank(0);
  const auto right = world.Rank(1);
  const auto send = left->PostSend(sent.data(), kBytes, 1, 1);
  const auto receive = right->PostReceive(came.data(), kBytes, 0, 1);
  while (!receive->done()) ASSERT_TRUE(left->Progress() || right->Progress());
  EXPECT_TRUE(send->done() && send->status().ok() && receive->status().ok());
  EXPECT_EQ(world.Ring(0, 1).taken.load(), kBytes + sizeof(MessageHead));
  EXPECT_EQ(std::memcmp(came.data(), step.data(), step.size()), 0);
}

TEST(Messages, FromAnySourceLetNoSourceStarve) {
  // Each sender has more in its ring than is received.
  constexpr unsigned kEach = 200;
  World world(5);
  std::vector<std::unique_ptr<Messages>> senders;
  for (int rank = 1; rank < 5; ++rank) {
    senders.push_back(world.Rank(rank));
    for (unsigned i = 0; i < kEach; ++i) ASSERT_TRUE(Send(*senders.back(), Filled(8, i), 0, 1).ok());
  }
  const auto messages = world.Rank(0);
  std::vector<unsigned> from(5, 0);
  for (unsigned i = 0; i < kEach; ++i) {
    int source = -1;
    const Data data = Received(*messages, 8, FULLDECK_ANY_SOURCE, 1, &source);
    ASSERT_GE(source, 1);
    ASSERT_EQ(data, Filled(8, from[static_cast<std::size_t>(source)]));
    ++from[static_cast<std::size_t>(source)];
    // After every round, each sender has had its turn.
    if (i % 4 == 3) {
      ASSERT_THAT(from, ::testing::ElementsAre(0, i / 4 + 1, i / 4 + 1, i / 4 + 1, i / 4 + 1));
    }
  }

  // The same with many receives open before anything can move.
  std::vector<std::shared_ptr<MessageOperation>> receives;
  Data data(8 * 100);
  for (std::size_t i = 0; i < 100; ++i) {
    receives.push_back(messages->PostReceive(data.data() + 8 * i, 8, FULLDECK_ANY_SOURCE, 1));
  }
  std::vector<unsigned> more(5, 0);
  for (const auto& receive : receives) {
    ASSERT_TRUE(messages->Wait(*receive, InAWhile()).ok());
    ++more[static_cast<std::size_t>(receive->peer())];
  }
  EXPECT_THAT(more, ::testing::ElementsAre(0, 25, 25, 25, 25));
}

TEST(Messages, OpenReceivesFromAnySourceAreSharedOutOverTheSources) {
  World world(4);
  const auto messages = world.Rank(0);
  Data data(8 * 90);
  std::vector<std::shared_ptr<MessageOperation>> receives;
  for (std::size_t i = 0; i < 90; ++i) {
    receives.push_back(messages->PostReceive(data.data() + 8 * i, 8, FULLDECK_ANY_SOURCE, 1));
  }
  std::vector<std::unique_ptr<Messages>> senders;
  for (int rank = 1; rank < 4; ++rank) {
    senders.push_back(world.Rank(rank));
    for (unsigned i = 0; i < 90; ++i) ASSERT_TRUE(Send(*senders.back(), Filled(8, i), 0, 1).ok());
  }
  std::vector<unsigned> from(4, 0);
  for (const auto& receive : receives) {
    ASSERT_TRUE(messages->Wait(*receive, InAWhile()).ok());
    ++from[static_cast<std::size_t>(receive->peer())];
  }
  EXPECT_THAT(from, ::testing::ElementsAre(0, 30, 30, 30));
}

// A plan that all ranks compute alike from the seed; each executes its own part of it in its own order.
void PlaySoak(int rank, Messages& messages, int size, unsigned seed, int rounds) {
  std::mt19937 plan(seed);
  std::mt19937 own(seed * 31 + static_cast<unsigned>(rank));
  const auto pick = [](std::mt19937& random, unsigned below) { return static_cast<unsigned>(random() % below); };
  for (int round = 0; round < rounds; ++round) {
    struct Planned {
      int from, to;
      std::uint64_t tag;
      std::size_t bytes;
      unsigned seed;
      bool any;
    };
    std::vector<Planned> mine;
    const unsigned count = pick(plan, 40);
    for (unsigned i = 0; i < count && size > 1; ++i) {
      Planned message{};
      message.from = static_cast<int>(pick(plan, static_cast<unsigned>(size)));
      message.to = (message.from + 1 + static_cast<int>(pick(plan, static_cast<unsigned>(size - 1)))) % size;
      message.any = pick(plan, 4) == 0;
      // The match of a receive from any source must be deterministic: such a tag is used once per round. Lengths depend
      // on the tag, so that messages of one tag may follow each other.
      message.tag = message.any ? 1000 + i : pick(plan, 4);
      const unsigned kind = static_cast<unsigned>(message.tag + static_cast<unsigned>(round)) % 8;
      message.bytes = kind == 0 ? 0 : kind < 6 ? kind * 517 : kind == 6 ? 70001 : 300007;
      message.seed = static_cast<unsigned>(plan());
      if (message.from == rank || message.to == rank) mine.push_back(message);
    }
    // Sends to one rank with one tag keep their order, and so do its receives; everything else is shuffled by moving
    // whole classes.
    std::vector<std::uint64_t> shift(1100);
    for (auto& place : shift) place = own();
    std::stable_sort(mine.begin(), mine.end(),
                     [&](const Planned& a, const Planned& b) { return shift[a.tag] < shift[b.tag]; });
    std::vector<Data> data(mine.size());
    std::vector<std::shared_ptr<MessageOperation>> operations(mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const Planned& message = mine[i];
      if (message.from == rank) {
        data[i] = Filled(message.bytes, message.seed);
        operations[i] = messages.PostSend(data[i].data(), data[i].size(), message.to, message.tag);
      } else {
        data[i] = Data(message.bytes);
        operations[i] = messages.PostReceive(data[i].data(), data[i].size(),
                                             message.any ? FULLDECK_ANY_SOURCE : message.from, message.tag);
      }
      if (pick(own, 3) == 0) messages.Progress();
    }
    std::vector<std::size_t> order(mine.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), own);
    for (const std::size_t i : order) {
      const Status status = messages.Wait(*operations[i], InAWhile());
      ASSERT_TRUE(status.ok()) << status.text();
      ASSERT_EQ(operations[i]->peer(), mine[i].from == rank ? mine[i].to : mine[i].from);
      ASSERT_EQ(data[i], Filled(mine[i].bytes, mine[i].seed)) << "round " << round << " tag " << mine[i].tag;
    }
    // The next round uses the same tags: no rank may run ahead into receives from any source of this round.
    for (int step = 1; step < size; ++step) {
      const int to = (rank + step) % size;
      const int from = (rank + size - step) % size;
      const auto receive = messages.PostReceive(nullptr, 0, from, 9999);
      ASSERT_TRUE(messages.Wait(*messages.PostSend(nullptr, 0, to, 9999), InAWhile()).ok());
      ASSERT_TRUE(messages.Wait(*receive, InAWhile()).ok());
    }
  }
}

class MessagesSoak : public ::testing::TestWithParam<int> {};

TEST_P(MessagesSoak, OfThreads) {
  World world(GetParam());
  world.RunThreads([&](int rank, Messages& messages) { PlaySoak(rank, messages, world.size(), 11, 30); });
}
TEST_P(MessagesSoak, OfProcesses) {
  World world(GetParam());
  world.RunProcesses([&](int rank, Messages& messages) { PlaySoak(rank, messages, world.size(), 12, 30); });
}
INSTANTIATE_TEST_SUITE_P(Ranks, MessagesSoak, ::testing::Values(1, 2, 3, 4, 5));

TEST(Messages, ArePostedAndAwaitedBySeveralThreads) {
  constexpr unsigned kThreads = 3;
  constexpr unsigned kEach = 100;
  World world(2);
  world.RunThreads([](int rank, Messages& messages) {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&messages, rank, thread] {
        for (unsigned i = 0; i < kEach; ++i) {
          const std::size_t bytes = i % 10 == 0 ? 300000 : i * 3;
          const Data sent = Filled(bytes, i * 2 + static_cast<unsigned>(rank));
          Data came(bytes);
          const auto receive = messages.PostReceive(came.data(), bytes, 1 - rank, thread);
          const auto send = messages.PostSend(sent.data(), bytes, 1 - rank, thread);
          ASSERT_TRUE(messages.Wait(*receive, InAWhile()).ok());
          ASSERT_TRUE(messages.Wait(*send, InAWhile()).ok());
          ASSERT_EQ(came, Filled(bytes, i * 2 + static_cast<unsigned>(1 - rank)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(messages.pending(), 0U);
  });
}

TEST(Messages, TimeOutThoughOtherThreadsKeepTheBellRinging) {
  World world(3);
  std::atomic<bool> over{false};
  // Ranks 0 and 1 exchange messages; another thread of rank 0 waits for rank 2, which never sends.
  world.RunThreads([&](int rank, Messages& messages) {
    if (rank == 2) return;
    std::thread waits;
    if (rank == 0) {
      waits = std::thread([&] {
        char byte = 0;
        const Status status = messages.Wait(*messages.PostReceive(&byte, 1, 2, 5), In(milliseconds(100)));
        EXPECT_EQ(status.code(), FULLDECK_ERROR_TIMEOUT);
        EXPECT_THAT(status.text(), HasSubstr("receive from rank 2, tag 5, 1 byte: nothing came"));
        over.store(true);
      });
    }
    const int peer = 1 - rank;
    const base::TimePoint end = InAWhile();
    while (!over.load() && In(seconds(0)) < end) {
      char out = 1;
      char in = 0;
      const auto receive = messages.PostReceive(&in, 1, peer, 1);
      const auto send = messages.PostSend(&out, 1, peer, 1);
      while (!over.load() && !(receive->done() && send->done())) messages.Progress();
      if (!receive->done() || !receive->status().ok()) {
        while (messages.pending() > 0 && rank == 0) messages.Progress();
        break;
      }
    }
    if (waits.joinable()) waits.join();
  });
  EXPECT_TRUE(over.load());
}

TEST(Messages, AThreadNoticesThatAnotherEndedItsOperation) {
  World world(2);
  Messages::Wiring wiring = world.Wiring(0);
  // A lost wake takes as long as the sleep_slice of the test's wait_policy.
  wiring.wait_policy = WaitPolicy{.pauses = 0, .yield_for = base::Duration(0), .sleep_slice = seconds(100)};
  Messages messages(wiring);
  const auto peer = world.Rank(1);
  for (unsigned i = 0; i < 50; ++i) {
    Data first(4);
    Data second(4);
    const auto first_receive = messages.PostReceive(first.data(), 4, 1, 1);
    const auto second_receive = messages.PostReceive(second.data(), 4, 1, 2);
    const base::TimePoint begin = In(seconds(0));
    std::thread a([&] { ASSERT_TRUE(messages.Wait(*first_receive, InAWhile()).ok()); });
    std::thread b([&] { ASSERT_TRUE(messages.Wait(*second_receive, InAWhile()).ok()); });
    ASSERT_TRUE(Send(*peer, Filled(4, i), 0, 2).ok());
    ASSERT_TRUE(Send(*peer, Filled(4, i + 1), 0, 1).ok());
    a.join();
    b.join();
    ASSERT_EQ(first, Filled(4, i + 1));
    ASSERT_EQ(second, Filled(4, i));
    ASSERT_LT(In(seconds(0)) - begin, seconds(60));
  }
}

// One thread drives everything, like that of a backend; the others post and poll.
TEST(Messages, AreDrivenByOneThreadThatSleeps) {
  World world(2);
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Messages>> ranks;
  std::vector<std::thread> drivers;
  for (int rank = 0; rank < 2; ++rank) {
    Messages::Wiring wiring = world.Wiring(rank);
    wiring.wait_policy = WaitPolicy{.pauses = 0, .yield_for = base::Duration(0), .sleep_slice = seconds(100)};
    ranks.push_back(std::make_unique<Messages>(wiring));
  }
  for (int rank = 0; rank < 2; ++rank) {
    drivers.emplace_back([&stop, &messages = *ranks[static_cast<std::size_t>(rank)]] {
      while (!stop.load()) {
        messages.Progress();
        messages.WaitForBell(seconds(100));
      }
    });
  }
  const base::TimePoint begin = In(seconds(0));
  const Data sent = Filled(1 << 20, 3);
  for (int i = 0; i < 20; ++i) {
    Data came(sent.size());
    const auto send = ranks[0]->PostSend(sent.data(), sent.size(), 1, 1);
    const auto receive = ranks[1]->PostReceive(came.data(), came.size(), 0, 1);
    while (!(send->done() && receive->done()) && In(seconds(0)) < begin + seconds(60)) std::this_thread::yield();
    ASSERT_EQ(came, sent);
  }
  stop.store(true);
  for (const auto& rank : ranks) rank->Wake();
  for (std::thread& driver : drivers) driver.join();
  EXPECT_LT(In(seconds(0)) - begin, seconds(90));
}

TEST_F(TwoRanks, WakeCountsBeforeTheSleepItIsMeantFor) {
  const base::TimePoint begin = In(seconds(0));
  left_->Wake();
  left_->Progress();
  left_->WaitForBell(seconds(100));
  EXPECT_LT(In(seconds(0)) - begin, seconds(60));
  left_->WaitForBell(milliseconds(1));
}

}  // namespace
}  // namespace fulldeck::collectives
