#include "collectives/rendezvous/rendezvous_errors.h"

#include <gtest/gtest.h>

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;

TEST(RendezvousErrors, ListsOfRanksAreShort) {
  EXPECT_EQ(ListOfRanks({3}), "rank 3");
  EXPECT_EQ(ListOfRanks({3, 4}), "ranks 3 and 4");
  EXPECT_EQ(ListOfRanks({0, 1, 2}), "ranks 0–2");
  EXPECT_EQ(ListOfRanks({1, 2, 5, 6, 7, 8, 9, 20}), "ranks 1, 2, 5–9 and 20");
}

TEST(RendezvousErrors, BothSidesMakeTheSameMessage) {
  const MemberClaim zero{0, 100, 1, 0, 2};
  const MemberClaim three{3, 0, 7, 1000, 4};
  EXPECT_EQ(
      VersionMismatch("g", zero, three),
      "group \"g\": rank 0 (pid 100) has version 1 of the collectives and rank 3 (a process of another pid namespace) "
      "has version 7: all members must run the same build of fulldeck");
  EXPECT_EQ(VersionMismatch("g", three, zero), VersionMismatch("g", zero, three));
  EXPECT_EQ(UserMismatch("g", three, zero), UserMismatch("g", zero, three));
  EXPECT_EQ(SizeMismatch("g", three, zero),
            "group \"g\": rank 0 (pid 100) says that it has 2 members and rank 3 (a process of another pid namespace) "
            "says 4");
  EXPECT_EQ(DuplicateRank("g", 2, 12, 11), "group \"g\": two members say that they are rank 2: pid 11 and pid 12");
  EXPECT_EQ(DuplicateRank("g", 2, 11, 11), "group \"g\": two members say that they are rank 2: both are in pid 11");
}

TEST(RendezvousErrors, ATimeoutReportsAllThatIsKnown) {
  RendezvousReport report;
  report.group = "g";
  report.rank = 1;
  report.size = 9;
  report.waited = 1500ms;
  report.absent = {5, 6, 7};
  report.unresponsive = {{0, "pid 7, stopped (SIGSTOP)"}};
  report.not_ready = {{3, "pid 9, running"}};
  report.unauthenticated_peers = 2;
  report.last_unauthenticated = 77;
  report.last_unauthenticated_uid = 1000;
  EXPECT_EQ(
      RendezvousTimedOut(report),
      "group \"g\": rank 1 waited 1.5 s for the others, and ranks 5–7 of 9 did not come; rank 0 (pid 7, stopped "
      "(SIGSTOP)) does not answer; rank 3 (pid 9, running) came but did not get ready. Connections that were refused "
      "because they did not prove that they know the key: 2, the last from pid 77 of user 1000.");
}

}  // namespace
}  // namespace fulldeck::collectives
