// The launcher that the others of a run are connected to: gathers them, starts each attempt on all nodes, finds out
// which node failed first, waits until all have stopped, and decides with its owner whether there is another attempt.
// One of the two roles behind NodeGroup.
//
// Which failure was the first: each node says how long ago it saw its own, by its own clock; the half round trip of the
// heartbeats is subtracted; a silent link failed when it was last heard. The earliest is the root, settled when every
// node has said that its ranks are gone.
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
  // `address` is numeric: of this node as the others should reach it, where that is known; empty when it listens on all
  // interfaces.
  Coordinator(NodeGroupContext& context, base::UniqueFd listener, std::string address);
  ~Coordinator() override;

  void Succeeded() override;
  void Failed(const NodeFailure& failure) override;
  void Stopped() override;

 private:
  enum class Phase { kRendezvous, kRunning, kStopping, kBetween, kClosing };
  struct Node {
    RosterEntry entry;
    std::unique_ptr<net::MessageLink> link;  // none for this node itself
    std::optional<LinkMonitor> monitor;
    int group_rank = -1;  // in the attempt; -1 for one that came after it began
    bool succeeded = false;
    bool ranks_gone = true;
    bool failed = false;  // has told of a failure in this attempt
    std::uint64_t best_step = 0;
  };

  // Gathering.
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
  std::vector<std::unique_ptr<Node>> nodes_;  // this node first, the others as they came
  std::vector<std::string> lost_;             // of this attempt, for people
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
