// A launcher that is connected to the coordinator: does what it is told, tells what happens here, and ends by itself
// when the connection is lost. One of the two roles behind HostGroup.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "net/message_link.h"
#include "nodes/host_loss.h"
#include "nodes/host_messages.h"
#include "nodes/host_role.h"
#include "nodes/link_pulse.h"

namespace fulldeck::nodes {

class HostMember final : public HostRole {
 public:
  // `lost_before_start` is posted when the coordinator goes away before the first attempt: it may come back.
  HostMember(HostGroupCore& core, std::unique_ptr<net::MessageLink> link, const JoinedMessage& joined,
             std::function<void(const std::string& reason)> lost_before_start);

  void Succeeded() override;
  void Failed(const HostFailure& failure) override;
  void Stopped() override;

 private:
  enum class Phase { kJoined, kRunning, kStopping, kBetween, kEnded };

  void OnMessage(std::string_view text);
  void OnStart(const AttemptStart& start);
  void OnStop(const StopMessage& message);
  void OnAgain(const AgainMessage& message);
  void OnOver(const OverMessage& message);
  void OnLinkEnded(const net::MessageLink::End& end);
  void LoseCoordinator(LossKind kind, const std::string& detail);
  void BeginToStop(const HostFailure& failure);
  void EndWhenRanksAreGone();
  void CheckDone();
  void End();
  void HangUp();
  void Tick();
  LossEnd OwnEnd() const;
  LossEnd CoordinatorEnd() const;

  HostGroupCore& core_;
  std::function<void(const std::string&)> lost_before_start_;
  Phase phase_ = Phase::kJoined;
  std::unique_ptr<net::MessageLink> link_;  // none once the coordinator was lost or has said the last word
  const std::string coordinator_name_;
  const std::string coordinator_address_;
  const std::string own_address_;
  LinkPulse pulse_;
  net::DepartingLinks departing_;

  int attempt_ = -1;
  int group_rank_ = -1;
  base::TimePoint attempt_began_{};
  bool succeeded_ = false;
  bool ranks_gone_ = true;
  FirstFailure first_;
  std::optional<HostFailure> verdict_;  // the coordinator's last word

  const StallWatch stalls_;
  const base::Duration tick_;
  bool beat_with_next_tick_ = true;
  base::TimePoint tick_due_{};
  LoopTimer tick_timer_;
  LoopTimer patience_timer_;
};

}  // namespace fulldeck::nodes
