// The sentences of a meeting that failed. Pure. Where both sides find the same thing wrong, both make the same
// sentence.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fulldeck::collectives {

// "rank 3", "ranks 1, 2 and 5–9". Sorted, not empty.
std::string ListOfRanks(const std::vector<int>& ranks);

struct MemberClaim {
  int rank = 0;
  pid_t pid = 0;  // 0: not known
  std::uint32_t version = 0;
  std::int64_t uid = 0;
  int size = 0;
};
// `group` is the name, fit to be shown.
std::string TwoVersions(const std::string& group, const MemberClaim& one, const MemberClaim& other);
std::string TwoUsers(const std::string& group, const MemberClaim& one, const MemberClaim& other);
std::string TwoSizes(const std::string& group, const MemberClaim& one, const MemberClaim& other);
std::string TwoOfOneRank(const std::string& group, int rank, pid_t one, pid_t other);
std::string MemberDied(const std::string& group, int rank, pid_t pid);

struct MeetingAttendance {
  std::string group;
  int rank = 0;
  int size = 0;
  base::Duration waited{};
  std::vector<int> absent;
  struct Silent {
    int rank = 0;
    std::string state;  // as DescribeProcess says it
  };
  std::vector<Silent> unanswering;  // listen, but have not said anything
  std::vector<Silent> unready;      // came, but did not do everything that was waited for
  pid_t place_taken_by = -1;  // somebody else listens where this member should; 0: somebody of another pid namespace
  int strangers = 0;          // who did not prove that they know the key
  pid_t last_stranger = 0;
  std::int64_t last_stranger_uid = 0;
};
std::string MeetingTimedOut(const MeetingAttendance& attendance);

}  // namespace fulldeck::collectives
