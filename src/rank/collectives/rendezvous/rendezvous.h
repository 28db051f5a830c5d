// How the members of a group find each other on one node and exchange their memory.
//
// Every member listens on an abstract Unix socket whose name is derived from name, key and rank; each connects to all
// lower ranks. Abstract names belong to a network namespace, so two namespaces are like two nodes. Each pair exchanges
// a hello (version, user from SO_PEERCRED, rank, size) and a proof of the key (HMAC over the other's nonce): an
// unauthenticated peer that finds the name learns nothing, gets nothing and disturbs nobody. Then the two exchange
// memory descriptors. A member that rejects another one sends the reason to all that it has reached, and a member that
// receives a failure forwards it, so that all fail with the same reason. Rank 0 declares the group established after
// every member has reported that it has mapped the memory of all.
//
// Successive rendezvous of the same name and key do not mix: a member stops listening before it reports that it is
// ready, so a member that has finished one rendezvous cannot reach a member that is still in it. After a failed
// rendezvous, the member that found the failure stays for up to one second to notify latecomers; a member that retries
// within that second may receive the failure again. No member leaves, for as long, while another one may already take
// it for a member and has not been notified.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "collectives/memory/shared_memory.h"
#include "collectives/peer_watch.h"

namespace fulldeck::collectives {

// What each member reports about itself; the rendezvous passes it on unchanged.
struct MemberInfo {
  std::uint64_t segment_bytes = 0;  // of the memory that it contributes
  std::int32_t node = 0;            // NUMA node on which it runs
};

// Why the rendezvous failed, as a code of the C interface: FULLDECK_ERROR_TIMEOUT (the text lists the missing ranks,
// with hints if all are missing), _STRANGER (members with different versions, users or group sizes, or a duplicate
// rank), _SYSTEM, _PEER_LOST (a member died meanwhile), _ARGUMENT (an invalid rank or size).
struct RendezvousFailure {
  int code = 0;
  std::string text;
};

struct RendezvousRequest {
  std::string name;
  std::string key;
  int rank = 0;
  int size = 1;
  std::shared_ptr<SharedMemory> segment;  // of this member; its descriptor is closed when the rendezvous succeeds
  MemberInfo info;
  std::shared_ptr<SharedMemory> control;  // contributed by rank 0 (its descriptor is closed too); nullptr on the others
  std::uint64_t control_bytes = 0;        // the same on all
  base::TimePoint deadline;
  std::uint32_t version = 0;  // 0: that of this build; tests set another one
  bool use_pidfd = true;      // see PeerWatch
  // This member cannot take part and only reports that: the rendezvous fails with this failure on all members that
  // arrive within one second. No memory is needed then.
  std::optional<RendezvousFailure> cannot_join;
};

struct Rendezvous {
  std::shared_ptr<SharedMemory> control;
  std::vector<std::shared_ptr<SharedMemory>> segments;  // by rank
  std::vector<MemberInfo> infos;                        // by rank
  PeerWatch watch;
};

// Blocks until all members have arrived, or the deadline. It may take up to two seconds longer if this member was ready
// in time and rank 0 does not report whether the group is established; or one second, if another member arrived so late
// that it has not been notified. Rank 0's control memory must be initialized before the call. Thread safe: one process
// may run several rendezvous concurrently.
struct RendezvousOutcome {
  std::unique_ptr<Rendezvous> rendezvous;  // nullptr: failed
  RendezvousFailure failure;
};
RendezvousOutcome RunRendezvous(RendezvousRequest request);

}  // namespace fulldeck::collectives
