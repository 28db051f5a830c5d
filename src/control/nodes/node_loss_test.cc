#include "nodes/node_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const LossEnd kCoordinator{"A", "10.0.0.1", 0};
const LossEnd kMember{"B", "10.0.0.2", 1};

TEST(NodeLoss, OfALinkNamesTheMemberAndTheSameLinkAtBothEnds) {
  for (const LossKind kind : {LossKind::kSilent, LossKind::kOneWay, LossKind::kBroken}) {
    const NodeFailure at_coordinator = DescribeLoss(kind, kCoordinator, kMember, true, 4s, "Connection timed out");
    const NodeFailure at_member = DescribeLoss(kind, kMember, kCoordinator, false, 4s, "Connection timed out");
    for (const NodeFailure& failure : {at_coordinator, at_member}) {
      EXPECT_EQ(failure.host_name, "B");
      EXPECT_EQ(failure.group_rank, 1);
      EXPECT_THAT(failure.summary, HasSubstr("the link between host A and host B is down"));
    }
  }
}

TEST(NodeLoss, ReportsWhatWasSeen) {
  EXPECT_EQ(DescribeLoss(LossKind::kSilent, kCoordinator, kMember, true, 4s, "").summary,
            "no word from host B (10.0.0.2) for 4 s: the link between host A and host B is down, or host B is");
  EXPECT_EQ(
      DescribeLoss(LossKind::kOneWay, kMember, kCoordinator, false, 4600ms, "").summary,
      "host A (10.0.0.1) has not heard host B for 4.6 s: the link between host A and host B is down in one direction");
  EXPECT_EQ(DescribeLoss(LossKind::kVanished, kMember, kCoordinator, false, 0s, "").summary,
            "the launcher of host A (10.0.0.1) ended without a word: it was killed, or the machine went down");
}

TEST(NodeLoss, OfALauncherNamesThatLauncher) {
  EXPECT_EQ(DescribeLoss(LossKind::kVanished, kCoordinator, kMember, true, 0s, "").host_name, "B");
  EXPECT_EQ(DescribeLoss(LossKind::kVanished, kMember, kCoordinator, false, 0s, "").host_name, "A");
  EXPECT_EQ(DescribeLoss(LossKind::kUnintelligible, kMember, kCoordinator, false, 0s, "").host_name, "A");
}

TEST(FirstFailure, IsTheEarliestAndOfEqualOnesTheFirstReceived) {
  const base::TimePoint now{1h};
  FirstFailure first;
  EXPECT_FALSE(first.get().has_value());
  NodeFailure failure;
  failure.host_name = "A";
  first.Add(failure, now);
  failure.host_name = "B";
  first.Add(failure, now);
  EXPECT_EQ(first.get()->host_name, "A");
  failure.host_name = "C";
  first.Add(failure, now - 1ns);
  EXPECT_EQ(first.get()->host_name, "C");
  EXPECT_FALSE(first.by_request());
  failure.by_request = true;
  first.Add(failure, now + 1s);
  EXPECT_EQ(first.get()->by_request, false);
  EXPECT_TRUE(first.by_request()) << "a stop by the user counts whenever it came";
}

}  // namespace
}  // namespace fulldeck::nodes
