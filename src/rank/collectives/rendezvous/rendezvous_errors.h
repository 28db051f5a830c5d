// The messages of a failed rendezvous. Pure. If both sides find the same problem, both produce the same message.
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
  pid_t pid = 0;  // 0: unknown
  std::uint32_t version = 0;
  std::int64_t uid = 0;
  int size = 0;
};
// `group` is the name, printable.
std::string VersionMismatch(const std::string& group, const MemberClaim& one, const MemberClaim& other);
std::string UserMismatch(const std::string& group, const MemberClaim& one, const MemberClaim& other);
std::string SizeMismatch(const std::string& group, const MemberClaim& one, const MemberClaim& other);
std::string DuplicateRank(const std::string& group, int rank, pid_t one, pid_t other);
std::string MemberDied(const std::string& group, int rank, pid_t pid);

struct RendezvousReport {
  std::string group;
  int rank = 0;
  int size = 0;
  base::Duration waited{};
  std::vector<int> absent;
  struct PendingMember {
    int rank = 0;
    std::string state;  // see DescribeProcess
  };
  std::vector<PendingMember> unresponsive;  // listening, but have not sent anything
  std::vector<PendingMember> not_ready;     // joined, but did not do everything that was waited for
  pid_t address_taken_by = -1;    // another process has this member's address; 0: one of another pid namespace
  int unauthenticated_peers = 0;  // peers that did not prove that they know the key
  pid_t last_unauthenticated = 0;
  std::int64_t last_unauthenticated_uid = 0;
};
std::string RendezvousTimedOut(const RendezvousReport& report);

}  // namespace fulldeck::collectives
