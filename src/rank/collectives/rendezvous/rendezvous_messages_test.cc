#include "collectives/rendezvous/rendezvous_messages.h"

#include <gtest/gtest.h>

#include "fulldeck/collectives.h"

namespace fulldeck::collectives {
namespace {

HelloMessage HelloOf(int rank) {
  HelloMessage hello;
  hello.rank = rank;
  hello.size = 4;
  hello.nonce = MakeRendezvousNonce();
  return hello;
}

TEST(RendezvousMessages, AProofIsBoundToBothHelloMessages) {
  const HelloMessage one = HelloOf(0);
  const HelloMessage other = HelloOf(1);
  const auto proof = MakeRendezvousProof("key", "group", one, other);
  EXPECT_EQ(MakeRendezvousProof("key", "group", one, other), proof);
  EXPECT_NE(MakeRendezvousProof("key", "group", other, one), proof);
  EXPECT_NE(MakeRendezvousProof("other key", "group", one, other), proof);
  EXPECT_NE(MakeRendezvousProof("key", "other group", one, other), proof);
  for (const auto change :
       {+[](HelloMessage& hello) { ++hello.version; }, +[](HelloMessage& hello) { ++hello.rank; },
        +[](HelloMessage& hello) { ++hello.size; }, +[](HelloMessage& hello) { ++hello.nonce[31]; }}) {
    HelloMessage changed = one;
    change(changed);
    EXPECT_NE(MakeRendezvousProof("key", "group", changed, other), proof);
  }
}

TEST(RendezvousMessages, NoncesAndAddressesDiffer) {
  EXPECT_NE(MakeRendezvousNonce(), MakeRendezvousNonce());
  const std::string address = RendezvousAddress("key", "group", 1);
  EXPECT_EQ(address, RendezvousAddress("key", "group", 1));
  EXPECT_TRUE(address.starts_with("fulldeck-"));
  EXPECT_LT(address.size(), 100U);
  EXPECT_NE(address, RendezvousAddress("key", "group", 2));
  EXPECT_NE(address, RendezvousAddress("key", "groups", 1));
  EXPECT_NE(address, RendezvousAddress("keys", "group", 1));
  // Rank and name cannot run together.
  EXPECT_NE(RendezvousAddress("key", "1\n", 1), RendezvousAddress("key", "", 11));
}

TEST(RendezvousMessages, OnlyWholeMessagesOfTheirKindAreTaken) {
  const std::string ready = Encode(ReadyMessage{});
  EXPECT_TRUE(Decode<ReadyMessage>(ready));
  EXPECT_FALSE(Decode<ReadyMessage>(ready + "x"));
  EXPECT_FALSE(Decode<ReadyMessage>(ready.substr(1)));
  EXPECT_FALSE(Decode<MemberMessage>(ready));
  EXPECT_FALSE(Decode<ProofMessage>(Encode(MemberMessage{}) + std::string(8, '\0')));
  const HelloMessage hello = HelloOf(3);
  EXPECT_EQ(DecodeHello(Encode(hello))->rank, 3);
  HelloMessage other_magic = hello;
  other_magic.magic = 1;
  EXPECT_FALSE(DecodeHello(Encode(other_magic)));
  EXPECT_FALSE(DecodeHello(Encode(hello).substr(1)));
  EXPECT_FALSE(KindOf("abc"));
}

TEST(RendezvousMessages, FailuresAreCappedCheckedAndPrintable) {
  const auto plain = DecodeFailure(EncodeFailure(FULLDECK_ERROR_TIMEOUT, "too late"));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->code, FULLDECK_ERROR_TIMEOUT);
  EXPECT_EQ(plain->text, "too late");
  EXPECT_EQ(DecodeFailure(EncodeFailure(FULLDECK_OK, "no failure"))->code, FULLDECK_ERROR_SYSTEM);
  EXPECT_EQ(DecodeFailure(EncodeFailure(-99, "\x1b[0m\xff"))->text, "?[0m?");
  const std::string longest = EncodeFailure(FULLDECK_ERROR_TIMEOUT, std::string(100000, 'x'));
  EXPECT_EQ(longest.size(), kMaxRendezvousPacket);
  EXPECT_TRUE(DecodeFailure(longest));
  EXPECT_FALSE(DecodeFailure(longest + "x"));
  EXPECT_FALSE(DecodeFailure(Encode(ReadyMessage{})));
  EXPECT_FALSE(DecodeFailure(""));
}

}  // namespace
}  // namespace fulldeck::collectives
