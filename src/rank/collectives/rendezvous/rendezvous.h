// How the members of a group find each other on one host and get each other's memory.
//
// Every member listens on an abstract Unix socket whose name is made from name, key and rank; each connects to all of
// lower rank. Abstract names belong to a network namespace, so two namespaces are two hosts. Each pair exchanges a
// hello: version, user (SO_PEERCRED), rank, size and a proof of the key (HMAC of the other's nonce: a
// unauthenticated_peer who finds the name learns nothing, gets nothing, and disturbs nobody), then memory descriptors.
// A member that refuses says why to all that it reached, and whoever is told of a refusal passes it on, so that all
// fail with the same reason. Rank 0 says when the group stands: after everybody has told it that everybody's memory is
// mapped.
//
// Meetings of the same name and key one after another do not mix: a member stops listening before it says that it is
// ready, so nobody who is through with one rendezvous can reach a member that is still in it. After a rendezvous that
// failed, whoever found the fault stays for up to a second to tell latecomers; whoever tries again within it may hear
// it again. Nobody leaves, for as long, while another may already take it for a member and has not been told.
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

// What each member tells the others about itself; the rendezvous passes it on as it is.
struct MemberInfo {
  std::uint64_t segment_bytes = 0;  // of the memory that it brings
  std::int32_t node = 0;            // NUMA node that it runs on
};

// Why there is no rendezvous, as the C interface counts it: FULLDECK_ERROR_TIMEOUT (the text lists who did not come,
// and has hints if nobody did), _STRANGER (members of different versions, users or sizes of the group, or two of one
// rank), _SYSTEM, _PEER_LOST (a member died meanwhile), _ARGUMENT (an impossible rank or size).
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
  std::shared_ptr<SharedMemory> control;  // rank 0 brings it (its descriptor goes too); nullptr on the others
  std::uint64_t control_bytes = 0;        // the same on all
  base::TimePoint deadline;
  std::uint32_t version = 0;  // 0: of this build; tests give another
  bool use_pidfd = true;      // see PeerWatch
  // This member cannot take part, and comes only to say so: the rendezvous fails with this on all who come within a
  // second. It needs no memory then.
  std::optional<RendezvousFailure> cannot_join;
};

struct Rendezvous {
  std::shared_ptr<SharedMemory> control;
  std::vector<std::shared_ptr<SharedMemory>> segments;  // by rank
  std::vector<MemberInfo> infos;                        // by rank
  PeerWatch watch;
};

// Blocks until all have come or the deadline (and at most two seconds more, when this member was ready in time and rank
// 0 does not say whether the group stands; or one, when somebody came so late that it has not been told). Rank 0's
// control memory must be ready for use before it calls. Threads: several meetings of one process may go on at the same
// time.
struct RendezvousOutcome {
  std::unique_ptr<Rendezvous> rendezvous;  // nullptr: failed
  RendezvousFailure failure;
};
RendezvousOutcome RunRendezvous(RendezvousRequest request);

}  // namespace fulldeck::collectives
