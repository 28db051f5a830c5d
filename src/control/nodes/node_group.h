// The nodes of a run: how their launchers find each other, agree on node numbers, start and restart together, and
// learn within seconds that one of them has failed. One launcher is the coordinator: the one with node rank 0, or,
// without node ranks, the one on the node of the rendezvous endpoint. The others keep one connection to it. Not used
// by single-node runs.
//
// The protocol is described in docs/wire-format.md, the whole in docs/several-hosts.md. The length of every message
// is checked before it is read. A peer that does not know the token is rejected before it receives any information.
//
// One thread: the loop's. Event-driven, except that looking up a host name may block (getaddrinfo), in Join and
// before each new attempt to connect, never after the rendezvous. Numeric addresses are not looked up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/result.h"

namespace fulldeck::nodes {

struct NodeGroupOptions {
  std::string endpoint_host;
  int endpoint_port = 29500;
  // 0 coordinates. If absent, the launcher that can bind the endpoint coordinates, and the others are numbered in
  // order of arrival.
  std::optional<int> node_rank;
  // Whether this launcher coordinates, if the user specified it; otherwise node_rank decides.
  std::optional<bool> is_host;
  int min_nodes = 1;
  int max_nodes = 1;  // at most kMaxNodes
  int local_ranks = 1;
  std::string token;                      // may be empty: then everyone who reaches the endpoint can join
  std::string host_name;                  // of this node; only used in messages
  std::optional<std::string> local_addr;  // of this node; the coordinator's becomes MASTER_ADDR on all nodes
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds last_call_timeout{30'000};  // once min_nodes have joined: time since the last one joined
  std::chrono::milliseconds silence_limit{4'000};       // a peer that is not heard for this long is lost
  // The time in which a node must report Stopped() after a stop. Must be longer than the grace period of its ranks.
  // After that the others continue without it.
  std::chrono::milliseconds stop_timeout{35'000};
  // A launcher whose connection closes without a final message counts as having failed this long before that was
  // noticed. Its ranks die with it, and errors that this causes in other ranks may be read first.
  std::chrono::milliseconds vanish_head_start{300};
  std::chrono::milliseconds handshake_timeout{5'000};  // for a new peer to prove that it knows the token
  std::chrono::milliseconds report_interval{10'000};   // between log lines that report which nodes are missing
};

inline constexpr int kMaxNodes = 4096;

struct GroupMember {
  std::string host_name;
  std::string address;
  int first_rank = 0;
  int ranks = 0;
};

// What every node receives before an attempt begins.
struct AttemptStart {
  int attempt = 0;
  int group_rank = 0;
  int group_world_size = 1;
  int first_rank = 0;
  int world_size = 1;
  std::string master_addr;  // numeric address of the coordinator as this node reaches it; may differ between nodes
  int master_port = 0;
  std::vector<GroupMember> members;  // by group rank
};

// How this node's share of an attempt ended, or which failure of the whole attempt came first.
struct NodeFailure {
  int group_rank = -1;
  std::string host_name;
  std::string summary;  // one line: "rank 5 killed by SIGKILL (out of memory)"
  int exit_code = 1;
  std::int64_t unix_nanoseconds = 0;  // by the clock of that node; not used for ordering
  std::uint64_t best_step = 0;        // progress of the attempt over all nodes, for the restart policy
  bool by_request = false;            // the user stopped that launcher: no restart follows
  // When the failure was seen, by the loop's clock of the reporting node; zero: when Failed() was called. Failures of
  // different nodes are ordered by values computed from this. Not sent to other nodes, because it is meaningless
  // there.
  base::TimePoint seen_at{};
};

// Callbacks run on the loop's thread, never from inside a call to this object. All but take_master_port and restart
// may destroy the NodeGroup. Nothing follows finished or gave_up. Callbacks that are not set are skipped.
struct NodeGroupEvents {
  // Called on the coordinator only, just before each attempt: returns a port of its node, which the first rank will
  // bind.
  std::function<base::Result<int>()> take_master_port;
  std::function<void(const AttemptStart&)> start;
  // Another node failed, or the connection to it was lost: stop the ranks of this attempt, then call Stopped().
  // `failure` is what is known so far. The root cause may turn out to be a different failure, so report it only at
  // `restarting` or `finished`. Not called on a node that called Failed().
  std::function<void(const NodeFailure& failure)> stop;
  // The attempt is over on all nodes, and another one follows after `delay`. `failure` names the node that failed
  // first, the same one on every node.
  std::function<void(const NodeFailure& failure, base::Duration delay)> restarting;
  // The run is over: all nodes succeeded, or the attempt failed and no restart follows. `failure` names the node that
  // failed first, the same one on every node.
  std::function<void(const std::optional<NodeFailure>& failure)> finished;
  // Called on the coordinator only: returns how long to wait before the next attempt, or nullopt for no further
  // attempt. Not called if the user stopped the run. If not set, there is no restart.
  std::function<std::optional<base::Duration>(const NodeFailure& failure)> restart;
  // The rendezvous failed, the first one or one after a restart. `reason` lists the nodes that joined, the missing
  // ones, and why.
  std::function<void(const std::string& reason)> gave_up;
  std::function<void(const std::string& line)> report;
};

class NodeGroup {
 public:
  NodeGroup(base::EventLoop& loop, NodeGroupOptions options, NodeGroupEvents events);
  // Closes all connections. Before finished or gave_up, the other nodes see this as a launcher that vanished.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  // Starts the rendezvous. Call it once. Returns errors that are known immediately: invalid options, and for node
  // rank 0 a port that is in use (with its owner) or that may not be bound.
  base::Result<void> Join();

  // All ranks of this node succeeded.
  void Succeeded();
  // A rank of this node failed first, or the user stopped this launcher. The ranks are being stopped; Stopped()
  // follows. After `stop`, call it only for a rank that had failed before it was signaled. Before an attempt, or
  // between two: this launcher leaves, and `finished` comes with this failure.
  void Failed(const NodeFailure& failure);
  // After stop or Failed: all ranks of this node are gone.
  void Stopped();
  // Progress of this node's ranks (step on the rank board), for the next heartbeat.
  void SetProgress(std::uint64_t best_step);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::nodes
