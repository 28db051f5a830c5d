// The launcher that the others of a run are connected to: gathers them, starts each attempt on all hosts, finds out
// which host failed first, waits until all have stopped, and decides with its owner whether there is another attempt.
// One of the two roles behind HostGroup.
//
// Which failure was the first: each host says how long ago it saw its own, by its own clock; the half round trip of the
// heartbeats is subtracted; a silent link failed when it was last heard. The earliest is the root, settled when every
// host has said that its ranks are gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "net/message_link.h"
#include "nodes/host_loss.h"
#include "nodes/host_messages.h"
#include "nodes/host_reception.h"
#include "nodes/host_role.h"
#include "nodes/host_roster.h"
#include "nodes/link_pulse.h"

namespace fulldeck::nodes {

class HostCoordinator final : public HostRole {
 public:
  // `address` is numeric: of this host as the others should reach it, where that is known; empty when it listens on all
  // interfaces.
  HostCoordinator(HostGroupCore& core, base::UniqueFd listener, std::string address);
  ~HostCoordinator() override;

  void Succeeded() override;
  void Failed(const HostFailure& failure) override;
  void Stopped() override;

 private:
  enum class Phase { kGathering, kRunning, kStopping, kBetween, kEnding };
  struct Host {
    RosterEntry entry;
    std::unique_ptr<net::MessageLink> link;  // none for this host itself
    std::optional<LinkPulse> pulse;
    int group_rank = -1;  // in the attempt; -1 for one that came after it began
    bool succeeded = false;
    bool ranks_gone = true;
    bool failed = false;  // has told of a failure in this attempt
    std::uint64_t best_step = 0;
  };

  // Gathering.
  void OnArrival(std::unique_ptr<net::MessageLink> link, const JoinMessage& join);
  void CheckGathered();
  void SayWhoIsMissing();
  void GiveUp(const std::string& reason);

  // An attempt.
  void StartAttempt();
  void OnFailure(Host& host, HostFailure failure, base::TimePoint when);
  void BeginToStop();
  void CheckDone();
  void StopPatienceIsOver();
  void Decide();
  void CheckReadyAgain();
  void Farewell(const std::optional<HostFailure>& failure);
  void WhenAllKnow(std::function<void()> last);

  // Links.
  void OnMessage(Host& host, std::string_view text);
  void OnFailedMessage(Host& host, const FailedMessage& message);
  void Lose(Host& host, LossKind kind, const std::string& detail);
  void Part(Host& host);
  void Remove(Host& host);
  void Tick();

  Host& self() { return *hosts_.front(); }
  HostFailure Root() const;
  std::vector<RosterEntry> Entries() const;
  std::string OwnAddress() const;
  base::TimePoint WithinAttempt(base::TimePoint when) const;
  template <typename Message>
  void Broadcast(const Message& message);

  HostGroupCore& core_;
  const std::string address_;
  Phase phase_ = Phase::kGathering;
  std::vector<std::unique_ptr<Host>> hosts_;  // this host first, the others as they came
  std::vector<std::string> lost_;             // of this attempt, for people
  std::unique_ptr<HostReception> reception_;
  net::DepartingLinks departing_;
  net::DepartingLinks last_words_;

  int attempt_ = -1;
  base::TimePoint attempt_began_{};
  FirstFailure first_;
  bool delay_over_ = false;

  const base::TimePoint begun_;
  const StallWatch stalls_;
  const base::Duration tick_;
  bool beat_with_next_tick_ = true;
  base::TimePoint tick_due_{};
  LoopTimer tick_timer_;
  LoopTimer report_timer_;
  LoopTimer join_timer_;
  LoopTimer last_call_timer_;
  LoopTimer patience_timer_;
  LoopTimer delay_timer_;
};

}  // namespace fulldeck::nodes
