// The hosts of a run: how their launchers find each other, agree on who is which host, start and restart together, and
// learn within seconds when one of them fails. One launcher (the one with node rank 0; without node ranks the one on
// whose host the meeting point is) is the coordinator; the others keep one connection to it. Not used on one host.
//
// The bytes are described in docs/wire-format.md, the whole in docs/several-hosts.md. Every message is capped before it
// is read; who does not know the token is turned away before anything is told.
//
// One thread: the loop's. Event-driven, except that looking up a host name may block (getaddrinfo), in Join and before
// each new try to connect, never once the hosts are together. Numeric addresses are not looked up.
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
  std::optional<int>
      node_rank;  // 0 coordinates; absent: who can bind the endpoint coordinates, the others come in order
  std::optional<bool>
      is_host;  // whether this launcher coordinates, where the user said so; else the line above decides
  int min_nodes = 1;
  int max_nodes = 1;  // at most kMaxNodes
  int local_ranks = 1;
  std::string token;                      // may be empty: then everybody who reaches the endpoint can join
  std::string host_name;                  // of this host, for people
  std::optional<std::string> local_addr;  // of this host; the coordinator's becomes MASTER_ADDR everywhere
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds last_call_timeout{30'000};  // with MIN hosts here, since the last one joined
  std::chrono::milliseconds silence_limit{4'000};       // a peer that is not heard for so long is lost
  // How long after a stop a host may take to report Stopped(); longer than the grace that it gives its ranks. Then the
  // others go on without it.
  std::chrono::milliseconds stop_timeout{35'000};
  // A launcher that ended without a word counts as having failed so much before it was noticed: its ranks die with it,
  // and what other ranks report of that may be read first.
  std::chrono::milliseconds vanish_head_start{300};
  std::chrono::milliseconds handshake_timeout{5'000};  // for a stranger to prove that it belongs here
  std::chrono::milliseconds report_interval{10'000};   // between lines that report who is missing
};

inline constexpr int kMaxNodes = 4096;

struct GroupMember {
  std::string host_name;
  std::string address;
  int first_rank = 0;
  int ranks = 0;
};

// What every host is told before an attempt begins.
struct AttemptStart {
  int attempt = 0;
  int group_rank = 0;
  int group_world_size = 1;
  int first_rank = 0;
  int world_size = 1;
  std::string master_addr;  // of the coordinator, numeric, as this host reaches it: hosts may see different ones
  int master_port = 0;
  std::vector<GroupMember> members;  // by group rank
};

// How this host's part of an attempt ended, or where the whole one began to fail.
struct NodeFailure {
  int group_rank = -1;
  std::string host_name;
  std::string summary;  // one line: "rank 5 killed by SIGKILL (out of memory)"
  int exit_code = 1;
  std::int64_t unix_nanoseconds = 0;  // by the clock of that host; orders nothing by itself
  std::uint64_t best_step = 0;        // progress of the attempt over all hosts, for the restart policy
  bool by_request = false;            // the user stopped that launcher: no restart follows
  // When it was seen, by the loop's clock of the host that reports it; zero: when Failed() was called. What orders the
  // failures of different hosts is made from this. Not sent to other hosts, where it would mean nothing.
  base::TimePoint seen_at{};
};

// Callbacks come on the loop's thread, never from inside a call to this object. All but take_master_port and restart
// may destroy the NodeGroup. After finished or gave_up nothing more comes. Those that are not set are left out.
struct NodeGroupEvents {
  // The coordinator is asked for a port of its host, just before each attempt, which the first rank will bind.
  std::function<base::Result<int>()> take_master_port;
  std::function<void(const AttemptStart&)> start;
  // Another host failed, or the connection to it was lost: stop the ranks of this attempt, then call Stopped().
  // `failure` is what is known so far; the one that began may still turn out to be another, so the report waits for
  // `restarting` or `finished`. Not called on a host that called Failed().
  std::function<void(const NodeFailure& failure)> stop;
  // The attempt is over on all hosts, and another one follows after `delay`. `failure` names the host that began, the
  // same on every host.
  std::function<void(const NodeFailure& failure, base::Duration delay)> restarting;
  // The run is over (all hosts succeeded, or the attempt failed and no restart follows): end. `failure` names the host
  // that began, the same on every host.
  std::function<void(const std::optional<NodeFailure>& failure)> finished;
  // The coordinator decides: nothing for no more attempt, else how long to wait before it. Not asked when the user
  // stopped the run. Absent: never again.
  std::function<std::optional<base::Duration>(const NodeFailure& failure)> restart;
  // The hosts never came together, or not again: who is here, who is missing, why.
  std::function<void(const std::string& reason)> gave_up;
  std::function<void(const std::string& line)> report;
};

class NodeGroup {
 public:
  NodeGroup(base::EventLoop& loop, NodeGroupOptions options, NodeGroupEvents events);
  // Closes everything. Before finished or gave_up the others see a launcher that ended without a word.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  // Begins to gather. Once. Errors that are known at once: options that cannot be, and for node rank 0 a port that is
  // taken (with its owner) or may not be bound.
  base::Result<void> Join();

  // This host's ranks all ended well.
  void Succeeded();
  // One of this host's ranks failed first, or the user stopped this launcher. The ranks are being stopped; Stopped()
  // follows. After `stop` only for a rank that had failed before it was signaled. Before an attempt, or between two:
  // this launcher leaves, and `finished` comes with this failure.
  void Failed(const NodeFailure& failure);
  // After stop or Failed: this host's ranks are all gone.
  void Stopped();
  // How far the ranks of this host are (board step), for the next heartbeat.
  void SetProgress(std::uint64_t best_step);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::nodes
