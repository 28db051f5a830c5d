// A launcher that is connected to the coordinator. It follows the coordinator's messages, reports what happens on its
// own node, and ends the run on its node by itself when the connection is lost. One of the two roles behind
// NodeGroup.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "net/message_link.h"
#include "nodes/link_monitor.h"
#include "nodes/node_loss.h"
#include "nodes/node_messages.h"
#include "nodes/node_role.h"

namespace fulldeck::nodes {

class NodeMember final : public NodeRole {
 public:
  // `lost_before_start` is posted if the coordinator is lost before the first attempt, because the coordinator may
  // come back.
  NodeMember(NodeGroupContext& context, std::unique_ptr<net::MessageLink> link, const JoinedMessage& joined,
             std::function<void(const std::string& reason)> lost_before_start);

  void Succeeded() override;
  void Failed(const NodeFailure& failure) override;
  void Stopped() override;

 private:
  enum class Phase { kJoined, kRunning, kStopping, kBetween, kEnded };

  void OnMessage(std::string_view text);
  void OnStart(const AttemptStart& start);
  void OnStop(const StopMessage& message);
  void OnRestart(const RestartMessage& message);
  void OnFinished(const FinishedMessage& message);
  void OnLinkEnded(const net::MessageLink::End& end);
  void OnCoordinatorLost(LossKind kind, const std::string& detail);
  void BeginToStop(const NodeFailure& failure);
  void EndWhenRanksAreGone();
  void CheckDone();
  void End();
  void HangUp();
  void Tick();
  LossEnd SelfEnd() const;
  LossEnd CoordinatorEnd() const;

  NodeGroupContext& context_;
  std::function<void(const std::string&)> lost_before_start_;
  Phase phase_ = Phase::kJoined;
  std::unique_ptr<net::MessageLink> link_;  // null after the coordinator was lost or has sent its final message
  const std::string coordinator_name_;
  const std::string coordinator_address_;
  const std::string self_address_;
  LinkMonitor monitor_;
  net::ClosingLinks closing_;

  int attempt_ = -1;
  int group_rank_ = -1;
  base::TimePoint attempt_began_{};
  bool succeeded_ = false;
  bool ranks_gone_ = true;
  FirstFailure first_;
  std::optional<NodeFailure> verdict_;  // the coordinator's final verdict

  const StallDetector stall_detector_;
  const base::Duration tick_;
  bool beat_with_next_tick_ = true;
  base::TimePoint tick_due_{};
  base::LoopTimer tick_timer_;
  base::LoopTimer stop_timer_;
};

}  // namespace fulldeck::nodes
