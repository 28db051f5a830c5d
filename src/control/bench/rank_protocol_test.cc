#include "bench/rank_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace fulldeck::bench {
namespace {

using ::testing::HasSubstr;

std::string Line(const Json& json) {
  return json.dump();
}

TEST(RankProtocol, AnOrderArrivesAsItWasGiven) {
  Cell cell;
  cell.operation = FindOperation("reduce_scatter");
  cell.element = FindElement("bfloat16");
  cell.bytes = std::uint64_t{5} << 30;
  cell.shared = true;
  cell.on_cuda = true;
  cell.seconds = 0.25;
  cell.min_calls = 4;
  cell.max_calls = 7;
  cell.spoil = true;
  const auto order = ReadOrder(LineOf(Order::Kind::kTimeline, cell));
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_EQ(order->kind, Order::Kind::kTimeline);
  EXPECT_EQ(order->cell.operation, cell.operation);
  EXPECT_EQ(order->cell.element, cell.element);
  EXPECT_EQ(order->cell.bytes, cell.bytes);
  EXPECT_TRUE(order->cell.shared);
  EXPECT_TRUE(order->cell.on_cuda);
  EXPECT_DOUBLE_EQ(order->cell.seconds, 0.25);
  EXPECT_EQ(order->cell.min_calls, 4);
  EXPECT_EQ(order->cell.max_calls, 7);
  EXPECT_TRUE(order->cell.spoil);
}

TEST(RankProtocol, AMeasurementArrivesAsItWasMade) {
  Measurement made;
  made.times_ns = {1, 22, std::uint64_t{1} << 40};
  made.checked = 99;
  const auto read = ReadMeasurement(Line(ToJson(made)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->times_ns, made.times_ns);
  EXPECT_EQ(read->checked, 99u);
  EXPECT_FALSE(read->wrong || read->failed || read->cannot);
  made.wrong = "rank 1: element 5 is 3";
  EXPECT_EQ(ReadMeasurement(Line(ToJson(made)))->wrong, made.wrong);
}

TEST(RankProtocol, ATimelineArrivesAsItWasMade) {
  RankTimeline made;
  made.about = "8 ranks";
  made.begin_ns = 100;
  made.end_ns = 900;
  made.events = {{Stage::kIn, 0, 100, 200},
                 {Stage::kWait, 0, 200, 300},
                 {Stage::kReduce, 0, 300, 700},
                 {Stage::kOut, 1, 700, 900}};
  const auto read = ReadTimeline(Line(ToJson(made)));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->events.size(), 4u);
  EXPECT_EQ(read->events[3].stage, Stage::kOut);
  EXPECT_EQ(read->events[3].chunk, 1u);
  const StageSums sums = SumOf(*read);
  EXPECT_DOUBLE_EQ(sums.work(), 700e-9);
  EXPECT_DOUBLE_EQ(sums.wait, 100e-9);
  EXPECT_DOUBLE_EQ(sums.wall, 800e-9);
  RankTimeline later = *read;
  later.end_ns = 1100;
  EXPECT_DOUBLE_EQ(SumOf(std::vector<RankTimeline>{*read, later}).wall, 1000e-9);
  EXPECT_DOUBLE_EQ(SumOf(std::vector<RankTimeline>{*read, later}).work(), 1400e-9);
}

TEST(RankProtocol, WhatIsNotUnderstoodIsAnErrorThatNamesTheField) {
  for (const char* line : {"", "{", "[]", "7", "null", "\xff\xfe"}) {
    EXPECT_FALSE(ReadGreeting(line)) << line;
    EXPECT_FALSE(ReadMeasurement(line)) << line;
    EXPECT_FALSE(ReadTimeline(line)) << line;
    EXPECT_FALSE(ReadOrder(line)) << line;
  }
  EXPECT_THAT(ReadMeasurement(R"({"times_ns": [1, -2]})").error().message, HasSubstr("times_ns"));
  EXPECT_THAT(ReadMeasurement(R"({"times_ns": "many"})").error().message, HasSubstr("times_ns"));
  EXPECT_THAT(ReadMeasurement(R"({"failed": 3})").error().message, HasSubstr("failed"));
  EXPECT_THAT(ReadTimeline(R"({"events": [["in", 1, 2]]})").error().message, HasSubstr("events"));
  EXPECT_THAT(ReadTimeline(R"({"events": [["up", 1, 2, 3]]})").error().message, HasSubstr("events"));
  EXPECT_THAT(ReadOrder(R"({"do": "dance"})").error().message, HasSubstr("do"));
  EXPECT_THAT(ReadGreeting(R"({"rank": 1.5})").error().message, HasSubstr("rank"));
}

TEST(RankProtocol, TextFromAPeerComesOutPrintableLineByLine) {
  EXPECT_EQ(ReadMeasurement(R"({"failed": "one\ntwo\u001b[2J"})")->failed, "one\ntwo?[2J");
  const std::string text(100000, 'x');
  EXPECT_LT(ReadMeasurement(Line({{"failed", text}}))->failed->size(), 5000u);
}

TEST(LineSocket, LinesComeOneByOneHoweverTheyWereCut) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  LineSocket one{base::UniqueFd(ends[0])};
  {
    LineSocket other{base::UniqueFd(ends[1])};
    ASSERT_TRUE(one.Send("first"));
    ASSERT_TRUE(one.Send(std::string(10000, 'y')));
    EXPECT_EQ(other.Receive(), "first");
    EXPECT_EQ(other.Receive()->size(), 10000u);
  }
  EXPECT_EQ(one.Receive(), std::nullopt);
  EXPECT_FALSE(one.Send("too late"));
}

}  // namespace
}  // namespace fulldeck::bench
