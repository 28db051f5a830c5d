#include "net/message_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/subprocess.h"
#include "loop_sockets.h"
#include "wire/bytes_header.h"

namespace fulldeck::net {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::RunFor;
using ::fulldeck::testing::RunUntil;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Framed(std::string_view payload, std::uint32_t version = kLinkVersion) {
  const wire::BytesHeader header = wire::MakeHeader(kLinkMagic, version, static_cast<std::uint32_t>(payload.size()));
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(payload);
}

class MessageLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int port = 0;
    const base::UniqueFd listener = ::fulldeck::testing::ListenOnLoopback(0, port);
    peer_ = ::fulldeck::testing::ConnectTo(port);
    base::UniqueFd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    ASSERT_TRUE(accepted.valid());
    MessageLink::Handlers handlers;
    handlers.message = [this](std::string_view message) {
      messages_.emplace_back(message);
      if (on_message_) on_message_();
    };
    handlers.ended = [this](const MessageLink::End& end) {
      ++ends_;
      end_ = end;
    };
    link_ = std::make_unique<MessageLink>(loop_, std::move(accepted), 1000, std::move(handlers));
  }
  void PeerSends(std::string_view bytes) {
    ASSERT_EQ(send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // What the peer can read until the link sends no more.
  std::string PeerReads(std::size_t length) {
    std::string text(length, '\0');
    std::size_t got = 0;
    while (got < length) {
      const ssize_t more = recv(peer_.get(), text.data() + got, length - got, MSG_DONTWAIT);
      if (more == 0) break;
      if (more < 0) {
        loop_.RunOnce(10ms);
        continue;
      }
      got += static_cast<std::size_t>(more);
    }
    text.resize(got);
    return text;
  }

  base::EventLoop loop_;
  base::UniqueFd peer_;
  std::unique_ptr<MessageLink> link_;
  std::vector<std::string> messages_;
  std::function<void()> on_message_;
  int ends_ = 0;
  MessageLink::End end_;
};

TEST_F(MessageLinkTest, TakesMessagesHoweverTheBytesAreSplit) {
  const std::string bytes = Framed("one") + Framed("") + Framed(std::string(1000, 'x')) + Framed("four");
  for (const char byte : bytes) {
    PeerSends({&byte, 1});
    loop_.RunOnce(1s);
  }
  ASSERT_TRUE(RunUntil(loop_, [&] { return messages_.size() == 4; }));
  EXPECT_THAT(messages_, ElementsAre("one", "", std::string(1000, 'x'), "four"));
  PeerSends(bytes);
  EXPECT_TRUE(RunUntil(loop_, [&] { return messages_.size() == 8; })) << "and all at once";
  EXPECT_EQ(ends_, 0);
}

TEST_F(MessageLinkTest, AForeignFirstByteIsEnough) {
  PeerSends("G");
  ASSERT_TRUE(RunUntil(loop_, [&] { return ends_ == 1; }));
  EXPECT_EQ(end_.kind, MessageLink::EndKind::kNotOurs);
}

TEST_F(MessageLinkTest, NamesBothVersionsOfOneThatSpeaksAnother) {
  PeerSends(Framed("x", 7));
  ASSERT_TRUE(RunUntil(loop_, [&] { return ends_ == 1; }));
  EXPECT_EQ(end_.kind, MessageLink::EndKind::kOtherVersion);
  EXPECT_THAT(end_.reason, HasSubstr("it speaks version 7"));
  EXPECT_THAT(end_.reason, HasSubstr("this fulldeck speaks version " + std::to_string(kLinkVersion)));
  // A final message is still sent.
  link_->Send("bye");
  EXPECT_EQ(PeerReads(19), Framed("bye"));
}

TEST_F(MessageLinkTest, RefusesALengthBeforeAnythingIsKeptForIt) {
  const wire::BytesHeader header = wire::MakeHeader(kLinkMagic, kLinkVersion, 0xffffffff);
  PeerSends({reinterpret_cast<const char*>(&header), sizeof header});
  ASSERT_TRUE(RunUntil(loop_, [&] { return ends_ == 1; }));
  EXPECT_EQ(end_.kind, MessageLink::EndKind::kNotOurs);
  EXPECT_THAT(end_.reason, HasSubstr("4294967295 bytes follow"));
}

TEST_F(MessageLinkTest, EndsOneThatSendsMoreThanItMayInAll) {
  link_->SetTotalLimit(100);
  for (int i = 0; i < 20 && ends_ == 0; ++i) {
    PeerSends(Framed(""));
    loop_.RunOnce(1s);
  }
  ASSERT_TRUE(RunUntil(loop_, [&] { return ends_ == 1; }));
  EXPECT_EQ(end_.kind, MessageLink::EndKind::kNotOurs);
  EXPECT_LE(messages_.size(), 7U);
}

TEST_F(MessageLinkTest, ReceivesTheFinalMessageBeforeTheEnd) {
  PeerSends(Framed("last"));
  peer_.Reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return ends_ == 1; }));
  EXPECT_THAT(messages_, ElementsAre("last"));
  EXPECT_EQ(end_.kind, MessageLink::EndKind::kClosed);
  link_->Send("nobody hears this");
  RunFor(loop_, 20ms);
  EXPECT_EQ(ends_, 1);
}

TEST_F(MessageLinkTest, KeepsWhatTheSocketDoesNotTakeAndSendsItLater) {
  const std::string big(900, 'z');
  for (int i = 0; i < 5000; ++i) link_->Send(big);
  const std::size_t expected = 5000 * (big.size() + sizeof(wire::BytesHeader));
  EXPECT_EQ(PeerReads(expected).size(), expected);
  EXPECT_EQ(ends_, 0);
}

TEST_F(MessageLinkTest, GivesUpOnAPeerThatNeverReads) {
  const std::string big(64 * 1024, 'z');
  for (int i = 0; i < 1000 && ends_ == 0; ++i) {
    link_->Send(big);
    loop_.RunOnce(0ms);
  }
  ASSERT_EQ(ends_, 1);
  EXPECT_EQ(end_.kind, MessageLink::EndKind::kBroken);
}

TEST_F(MessageLinkTest, MayBeDestroyedByItsOwnHandler) {
  on_message_ = [this] { link_.reset(); };
  PeerSends(Framed("one") + Framed("two"));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !messages_.empty(); }));
  RunFor(loop_, 20ms);
  EXPECT_THAT(messages_, ElementsAre("one"));
}

TEST_F(MessageLinkTest, NewHandlersTakeTheNextMessageOfTheSameBreath) {
  std::vector<std::string> later;
  on_message_ = [&] {
    link_->SetHandlers(
        {[&](std::string_view message) { later.emplace_back(message); }, [](const MessageLink::End&) {}});
  };
  PeerSends(Framed("one") + Framed("two"));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !later.empty(); }));
  EXPECT_THAT(messages_, ElementsAre("one"));
  EXPECT_THAT(later, ElementsAre("two"));
}

TEST_F(MessageLinkTest, AClosingLinkDeliversItsFinalMessageThoughUnreadBytesWait) {
  ClosingLinks closing(loop_);
  bool empty = false;
  closing.WhenEmpty([&] { empty = true; });
  PeerSends(Framed(std::string(500, 'u')));
  link_->Send("the last word");
  closing.Add(std::move(link_), 20s);
  EXPECT_EQ(PeerReads(1000), Framed("the last word")) << "whole, and then the end";
  EXPECT_FALSE(empty);
  peer_.Reset();
  EXPECT_TRUE(RunUntil(loop_, [&] { return empty; }));
}

TEST_F(MessageLinkTest, AClosingLinkWaitsForNobodyLongerThanItsTimeout) {
  ClosingLinks closing(loop_);
  closing.Add(std::move(link_), 50ms);
  EXPECT_EQ(closing.size(), 1U);
  EXPECT_TRUE(RunUntil(loop_, [&] { return closing.size() == 0; }));
}

}  // namespace
}  // namespace fulldeck::net
