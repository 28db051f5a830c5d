#include "nodes/node_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::nodes {
namespace {

using ::testing::HasSubstr;

const std::string kHex(64, 'a');

NodeFailure SomeFailure() {
  NodeFailure failure;
  failure.group_rank = 1;
  failure.host_name = "B";
  failure.summary = "rank 5 killed by SIGKILL";
  failure.exit_code = 137;
  failure.unix_nanoseconds = 1'700'000'000'000'000'000;
  failure.best_step = UINT64_MAX;
  failure.by_request = true;
  return failure;
}

template <typename Message>
Message ThereAndBack(const Message& message) {
  const std::string text = EncodeNodeMessage(message);
  const auto decoded = DecodeNodeMessage(text);
  EXPECT_TRUE(decoded.ok()) << text << ": " << (decoded.ok() ? "" : decoded.error().message);
  const Message* held = decoded.ok() ? std::get_if<Message>(&*decoded) : nullptr;
  EXPECT_NE(held, nullptr) << text;
  return held != nullptr ? *held : Message{};
}

TEST(NodeMessages, SurviveTheWay) {
  EXPECT_EQ(ThereAndBack(HelloMessage{kHex}).nonce, kHex);
  EXPECT_EQ(ThereAndBack(ChallengeMessage{kHex}).nonce, kHex);
  EXPECT_EQ(ThereAndBack(ProofMessage{kHex}).proof, kHex);
  EXPECT_EQ(ThereAndBack(RefusedMessage{"no"}).reason, "no");
  EXPECT_EQ(ThereAndBack(WaitingMessage{"who"}).text, "who");
  EXPECT_EQ(ThereAndBack(GaveUpMessage{"why"}).reason, "why");
  EXPECT_EQ(ThereAndBack(StoppedMessage{7}).attempt, 7);
  EXPECT_EQ(ThereAndBack(SucceededMessage{7}).attempt, 7);
  EXPECT_FALSE(ThereAndBack(FinishedMessage{}).failure.has_value());

  const JoinMessage join = ThereAndBack(JoinMessage{"B", "10.0.0.2", 3, 8, 2, 4});
  EXPECT_EQ(join.host_name, "B");
  EXPECT_EQ(join.address, "10.0.0.2");
  EXPECT_EQ(join.node_rank, 3);
  EXPECT_EQ(join.ranks, 8);
  EXPECT_EQ(join.min_nodes, 2);
  EXPECT_EQ(join.max_nodes, 4);
  EXPECT_FALSE(ThereAndBack(JoinMessage{"B", std::nullopt, std::nullopt, 8, 2, 4}).node_rank.has_value());

  const JoinedMessage joined = ThereAndBack(JoinedMessage{"A", 2});
  EXPECT_EQ(joined.host_name, "A");
  EXPECT_EQ(joined.nodes, 2);

  const HeartbeatMessage beat = ThereAndBack(HeartbeatMessage{UINT64_MAX, 2, 3, 4});
  EXPECT_EQ(beat.count, UINT64_MAX);
  EXPECT_EQ(beat.echo, 2U);
  EXPECT_EQ(beat.held_ns, 3U);
  EXPECT_EQ(beat.best_step, 4U);
}

TEST(NodeMessages, CarryAFailureWhole) {
  const FailedMessage failed = ThereAndBack(FailedMessage{-1, SomeFailure(), 123});
  EXPECT_EQ(failed.attempt, -1);
  EXPECT_EQ(failed.age_ns, 123U);
  for (const NodeFailure& failure : {failed.failure, ThereAndBack(StopMessage{2, SomeFailure()}).failure,
                                     ThereAndBack(RestartMessage{2, SomeFailure(), 5}).failure,
                                     *ThereAndBack(FinishedMessage{SomeFailure()}).failure}) {
    EXPECT_EQ(failure.group_rank, 1);
    EXPECT_EQ(failure.host_name, "B");
    EXPECT_EQ(failure.summary, "rank 5 killed by SIGKILL");
    EXPECT_EQ(failure.exit_code, 137);
    EXPECT_EQ(failure.unix_nanoseconds, 1'700'000'000'000'000'000);
    EXPECT_EQ(failure.best_step, UINT64_MAX);
    EXPECT_TRUE(failure.by_request);
  }
}

TEST(NodeMessages, AStartHoldsTheLargestRunWithinItsLimit) {
  AttemptStart start;
  start.attempt = 3;
  start.group_rank = kMaxNodes - 1;
  start.master_addr = "10.0.0.1";
  start.master_port = 40001;
  for (int i = 0; i < kMaxNodes; ++i)
    start.members.push_back({std::string(64, '"'), "2001:db8::1234:5678%eth0", 0, 16});
  const std::string text = EncodeNodeMessage(StartMessage{start});
  EXPECT_LT(text.size(), net::kLongestMessage);
  const AttemptStart back = ThereAndBack(StartMessage{start}).start;
  EXPECT_EQ(back.group_world_size, kMaxNodes);
  EXPECT_EQ(back.world_size, 16 * kMaxNodes);
  EXPECT_EQ(back.first_rank, 16 * (kMaxNodes - 1)) << "made from the list, so that it cannot contradict it";
  EXPECT_EQ(back.attempt, 3);
  EXPECT_EQ(back.master_port, 40001);
}

TEST(NodeMessages, CutAndCleanWhatUsersWillSee) {
  NodeFailure failure;
  failure.summary = "\x1b[31m" + std::string(5000, 'x');
  failure.host_name = "evil\nhost" + std::string(200, 'y');
  failure.exit_code = -9;
  const NodeFailure back = ThereAndBack(StopMessage{0, failure}).failure;
  EXPECT_EQ(back.summary.find('\x1b'), std::string::npos);
  EXPECT_LE(back.summary.size(), 1024U);
  EXPECT_EQ(back.host_name.find('\n'), std::string::npos);
  EXPECT_LE(back.host_name.size(), 64U);
  EXPECT_EQ(back.exit_code, 0);
  // JSON escapes decode to control bytes; they are sanitized on the way in, too.
  const auto sneaky = DecodeNodeMessage(R"({"type":"waiting","text":"a\u001b[2Jb"})");
  ASSERT_TRUE(sneaky.ok());
  EXPECT_EQ(std::get<WaitingMessage>(*sneaky).text.find('\x1b'), std::string::npos);
}

TEST(NodeMessages, BelieveNothing) {
  for (const std::string& text : std::vector<std::string>{
           "",
           "null",
           "[]",
           "{",
           "{}",
           "\xff\xfe",
           R"({"type":7})",
           R"({"type":"dance"})",
           R"({"type":"hello"})",
           R"({"type":"hello","nonce":7})",
           R"({"type":"hello","nonce":"abc"})",
           R"({"type":"hello","nonce":")" + std::string(64, 'G') + "\"}",
           R"({"type":"hello","nonce":")" + std::string(65, 'a') + "\"}",
           R"({"type":"join","host":"B","ranks":0,"min_hosts":1,"max_hosts":1})",
           R"({"type":"join","host":"B","ranks":1,"min_hosts":1,"max_hosts":1,"node_rank":-1})",
           R"({"type":"join","host":"B","ranks":1,"min_hosts":1,"max_hosts":99999})",
           R"({"type":"join","host":"B","ranks":1.5,"min_hosts":1,"max_hosts":1})",
           R"({"type":"join","host":"B","ranks":18446744073709551615,"min_hosts":1,"max_hosts":1})",
           R"({"type":"join","host":")" + std::string(65, 'h') + R"(","ranks":1,"min_hosts":1,"max_hosts":1})",
           R"({"type":"beat","n":-1,"echo":0,"held_ns":0,"step":0})",
           R"({"type":"beat","n":1,"echo":0,"held_ns":18446744073709551615,"step":0})",
           R"({"type":"stop","attempt":0})",
           R"({"type":"stop","attempt":0,"failure":{}})",
           R"({"type":"failed","attempt":-2,"failure":{},"age_ns":0})",
           R"({"type":"start","attempt":0,"group_rank":0,"master_addr":"","master_port":0,"members":[["A","",1]]})",
           R"({"type":"start","attempt":0,"group_rank":1,"master_addr":"","master_port":1,"members":[["A","",1]]})",
           R"({"type":"start","attempt":0,"group_rank":0,"master_addr":"","master_port":1,"members":[]})",
           R"({"type":"start","attempt":0,"group_rank":0,"master_addr":"","master_port":1,"members":[["A","",0]]})",
           R"({"type":"start","attempt":0,"group_rank":0,"master_addr":"","master_port":1,"members":[["A",1]]})",
           R"({"type":"over","failure":null})",
           std::string(60'000, '[')}) {
    EXPECT_FALSE(DecodeNodeMessage(text).ok()) << text.substr(0, 120);
  }
  EXPECT_THAT(DecodeNodeMessage(R"({"type":"\u001b[2J"})").error().message, ::testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(DecodeNodeMessage(R"({"type":"stopped","attempt":-5})").error().message,
              HasSubstr("'stopped' whose 'attempt' is missing or cannot be"));
}

}  // namespace
}  // namespace fulldeck::nodes
