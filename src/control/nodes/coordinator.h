// The launcher that all other launchers of a run connect to. It runs the rendezvous, starts each attempt on all
// nodes, determines which node failed first, waits until all nodes have stopped, and decides with its owner whether
// another attempt follows. One of the two roles behind NodeGroup.
//
// How the first failure is found: each node reports how long ago it saw its own failure, measured by its own clock.
// The coordinator subtracts half the round trip of the heartbeats. A silent link counts as failed at the time at
// which it was last heard. The earliest failure is the root cause. It is final when every node has reported that its
// ranks are gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "net/message_link.h"
#include "nodes/link_monitor.h"
#include "nodes/node_acceptor.h"
#include "nodes/node_loss.h"
#include "nodes/node_messages.h"
#include "nodes/node_role.h"
#include "nodes/node_roster.h"

namespace fulldeck::nodes {

class Coordinator final : public NodeRole {
 public:
  // `address` is the numeric address at which other nodes should reach this one, if it is known. It is empty if the
  // coordinator listens on all interfaces.
  Coordinator(NodeGroupContext& context, base::UniqueFd listener, std::string address);
  ~Coordinator() override;

  void Succeeded() override;
  void Failed(const NodeFailure& failure) override;
  void Stopped() override;

 private:
  enum class Phase { kRendezvous, kRunning, kStopping, kBetween, kClosing };
  struct Node {
    RosterEntry entry;
    // Null for this node itself.
    std::unique_ptr<net::MessageLink> link;
    std::optional<LinkMonitor> monitor;
    // In the current attempt; -1 for a node that joined after it began.
    int group_rank = -1;
    bool succeeded = false;
    bool ranks_gone = true;
    bool failed = false;  // has reported a failure in this attempt
    std::uint64_t best_step = 0;
  };

  // Rendezvous.
  void OnArrival(std::unique_ptr<net::MessageLink> link, const JoinMessage& join);
  void CheckRendezvous();
  void ReportMissingNodes();
  void GiveUp(const std::string& reason);

  // An attempt.
  void StartAttempt();
  void OnFailure(Node& node, NodeFailure failure, base::TimePoint when);
  void BeginToStop();
  void CheckDone();
  void OnStopTimeout();
  void Decide();
  void CheckReadyAgain();
  void SendFinal(const std::optional<NodeFailure>& failure);
  void CloseLinks(std::function<void()> last);

  // Links.
  void OnMessage(Node& node, std::string_view text);
  void OnFailedMessage(Node& node, const FailedMessage& message);
  void OnPeerLost(Node& node, LossKind kind, const std::string& detail);
  void Disconnect(Node& node);
  void Remove(Node& node);
  void Tick();

  Node& self() { return *nodes_.front(); }
  NodeFailure Root() const;
  std::vector<RosterEntry> Entries() const;
  std::string SelfAddress() const;
  base::TimePoint WithinAttempt(base::TimePoint when) const;
  template <typename Message>
  void Broadcast(const Message& message);

  NodeGroupContext& context_;
  const std::string address_;
  Phase phase_ = Phase::kRendezvous;
  std::vector<std::unique_ptr<Node>> nodes_;  // this node first, then the others in order of arrival
  std::vector<std::string> lost_;             // lost in this attempt; only used in messages
  std::unique_ptr<NodeAcceptor> acceptor_;
  net::ClosingLinks closing_;
  net::ClosingLinks final_links_;

  int attempt_ = -1;
  base::TimePoint attempt_began_{};
  FirstFailure first_;
  bool delay_over_ = false;

  const base::TimePoint begun_;
  const StallDetector stall_detector_;
  const base::Duration tick_;
  bool beat_with_next_tick_ = true;
  base::TimePoint tick_due_{};
  base::LoopTimer tick_timer_;
  base::LoopTimer report_timer_;
  base::LoopTimer join_timer_;
  base::LoopTimer last_call_timer_;
  base::LoopTimer stop_timer_;
  base::LoopTimer delay_timer_;
};

}  // namespace fulldeck::nodes
