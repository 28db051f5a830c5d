#include "collectives/rendezvous/meeting_words.h"

#include <gtest/gtest.h>

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;

TEST(MeetingWords, ListsOfRanksAreShort) {
  EXPECT_EQ(ListOfRanks({3}), "rank 3");
  EXPECT_EQ(ListOfRanks({3, 4}), "ranks 3 and 4");
  EXPECT_EQ(ListOfRanks({0, 1, 2}), "ranks 0–2");
  EXPECT_EQ(ListOfRanks({1, 2, 5, 6, 7, 8, 9, 20}), "ranks 1, 2, 5–9 and 20");
}

TEST(MeetingWords, BothSidesMakeTheSameSentence) {
  const MemberClaim zero{0, 100, 1, 0, 2};
  const MemberClaim three{3, 0, 7, 1000, 4};
  EXPECT_EQ(
      TwoVersions("g", zero, three),
      "group \"g\": rank 0 (pid 100) has version 1 of the collectives and rank 3 (a process of another pid namespace) "
      "has version 7: all members must run the same build of fulldeck");
  EXPECT_EQ(TwoVersions("g", three, zero), TwoVersions("g", zero, three));
  EXPECT_EQ(TwoUsers("g", three, zero), TwoUsers("g", zero, three));
  EXPECT_EQ(TwoSizes("g", three, zero),
            "group \"g\": rank 0 (pid 100) says that it has 2 members and rank 3 (a process of another pid namespace) "
            "says 4");
  EXPECT_EQ(TwoOfOneRank("g", 2, 12, 11), "group \"g\": two members say that they are rank 2: pid 11 and pid 12");
  EXPECT_EQ(TwoOfOneRank("g", 2, 11, 11), "group \"g\": two members say that they are rank 2: both are in pid 11");
}

TEST(MeetingWords, ATimeoutTellsAllThatIsKnown) {
  MeetingAttendance attendance;
  attendance.group = "g";
  attendance.rank = 1;
  attendance.size = 9;
  attendance.waited = 1500ms;
  attendance.absent = {5, 6, 7};
  attendance.unanswering = {{0, "pid 7, stopped (SIGSTOP)"}};
  attendance.unready = {{3, "pid 9, running"}};
  attendance.strangers = 2;
  attendance.last_stranger = 77;
  attendance.last_stranger_uid = 1000;
  EXPECT_EQ(
      MeetingTimedOut(attendance),
      "group \"g\": rank 1 waited 1.5 s for the others, and ranks 5–7 of 9 did not come; rank 0 (pid 7, stopped "
      "(SIGSTOP)) does not answer; rank 3 (pid 9, running) came but did not get ready. Connections that were refused "
      "because they did not prove that they know the key: 2, the last from pid 77 of user 1000.");
}

}  // namespace
}  // namespace fulldeck::collectives
