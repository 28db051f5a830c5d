#include "collectives/rendezvous/meeting_messages.h"

#include <gtest/gtest.h>

#include "fulldeck/collectives.h"

namespace fulldeck::collectives {
namespace {

Greeting GreetingOf(int rank) {
  Greeting greeting;
  greeting.rank = rank;
  greeting.size = 4;
  greeting.nonce = MakeMeetingNonce();
  return greeting;
}

TEST(MeetingMessages, AProofIsBoundToEverythingThatWasSaid) {
  const Greeting one = GreetingOf(0);
  const Greeting other = GreetingOf(1);
  const auto proof = MakeMeetingProof("key", "group", one, other);
  EXPECT_EQ(MakeMeetingProof("key", "group", one, other), proof);
  EXPECT_NE(MakeMeetingProof("key", "group", other, one), proof);
  EXPECT_NE(MakeMeetingProof("other key", "group", one, other), proof);
  EXPECT_NE(MakeMeetingProof("key", "other group", one, other), proof);
  for (const auto change :
       {+[](Greeting& greeting) { ++greeting.version; }, +[](Greeting& greeting) { ++greeting.rank; },
        +[](Greeting& greeting) { ++greeting.size; }, +[](Greeting& greeting) { ++greeting.nonce[31]; }}) {
    Greeting changed = one;
    change(changed);
    EXPECT_NE(MakeMeetingProof("key", "group", changed, other), proof);
  }
}

TEST(MeetingMessages, NoncesAndAddressesDiffer) {
  EXPECT_NE(MakeMeetingNonce(), MakeMeetingNonce());
  const std::string address = MeetingAddress("key", "group", 1);
  EXPECT_EQ(address, MeetingAddress("key", "group", 1));
  EXPECT_TRUE(address.starts_with("fulldeck-"));
  EXPECT_LT(address.size(), 100U);
  EXPECT_NE(address, MeetingAddress("key", "group", 2));
  EXPECT_NE(address, MeetingAddress("key", "groups", 1));
  EXPECT_NE(address, MeetingAddress("keys", "group", 1));
  // The rank does not run into the name.
  EXPECT_NE(MeetingAddress("key", "1\n", 1), MeetingAddress("key", "", 11));
}

TEST(MeetingMessages, OnlyWholeMessagesOfTheirKindAreTaken) {
  const std::string ready = Encode(ReadyMessage{});
  EXPECT_TRUE(Decode<ReadyMessage>(ready));
  EXPECT_FALSE(Decode<ReadyMessage>(ready + "x"));
  EXPECT_FALSE(Decode<ReadyMessage>(ready.substr(1)));
  EXPECT_FALSE(Decode<MemberMessage>(ready));
  EXPECT_FALSE(Decode<ProofMessage>(Encode(MemberMessage{}) + std::string(8, '\0')));
  const Greeting greeting = GreetingOf(3);
  EXPECT_EQ(DecodeGreeting(Encode(greeting))->rank, 3);
  Greeting other_magic = greeting;
  other_magic.magic = 1;
  EXPECT_FALSE(DecodeGreeting(Encode(other_magic)));
  EXPECT_FALSE(DecodeGreeting(Encode(greeting).substr(1)));
  EXPECT_FALSE(KindOf("abc"));
}

TEST(MeetingMessages, FailuresAreCappedCheckedAndPrintable) {
  const auto plain = DecodeFailure(EncodeFailure(FULLDECK_ERROR_TIMEOUT, "too late"));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->code, FULLDECK_ERROR_TIMEOUT);
  EXPECT_EQ(plain->text, "too late");
  EXPECT_EQ(DecodeFailure(EncodeFailure(FULLDECK_OK, "no failure"))->code, FULLDECK_ERROR_SYSTEM);
  EXPECT_EQ(DecodeFailure(EncodeFailure(-99, "\x1b[0m\xff"))->text, "?[0m?");
  const std::string longest = EncodeFailure(FULLDECK_ERROR_TIMEOUT, std::string(100000, 'x'));
  EXPECT_EQ(longest.size(), kLongestMeetingPacket);
  EXPECT_TRUE(DecodeFailure(longest));
  EXPECT_FALSE(DecodeFailure(longest + "x"));
  EXPECT_FALSE(DecodeFailure(Encode(ReadyMessage{})));
  EXPECT_FALSE(DecodeFailure(""));
}

}  // namespace
}  // namespace fulldeck::collectives
