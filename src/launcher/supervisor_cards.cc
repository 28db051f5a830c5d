// Supervisor: the gate "every card works".
#include "launcher/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "launcher/process_tree.h"

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;

}  // namespace

void Supervisor::WatchCards() {
  if (plan_->flags.idle_card == job::IdleCardPolicy::kOff || !plan_->ranks.front().card) return;
  std::vector<device::Card> cards;
  std::vector<std::string> names;
  for (const PlannedRank& rank : plan_->ranks) {
    if (static_cast<std::size_t>(*rank.placement.card) < cards.size()) continue;  // shared with an earlier rank
    cards.push_back(*rank.card);
    names.push_back(device::NameOf(*rank.card));
  }
  gate_.emplace(std::move(names));
  auto watch = CardWatch::Start(loop_, cards, plan_->environment, [this](const CardReading& reading) {
    if (!gate_ || phase_ != Phase::kRunning) return;
    gate_->Observe(reading);
    if (gate_->Passed() && gate_timer_ != 0) {
      loop_.Remove(gate_timer_);
      gate_timer_ = loop_.After(milliseconds(0), [this] { EndIdleGate(); });
    }
  });
  if (!watch) return Say("warning: the cards cannot be watched: " + watch.error().message);
  card_watch_ = std::move(*watch);
  gate_timer_ = loop_.After(plan_->flags.idle_card_after, [this] { EndIdleGate(); });
}

void Supervisor::EndIdleGate() {
  gate_timer_ = 0;
  if (!gate_ || phase_ != Phase::kRunning) return;
  if (!gate_->Passed() && (!card_watch_ || card_watch_->pid() <= 0)) {
    Say("warning: cannot tell whether every card works: the process that reads the cards has ended");
    gate_.reset();
    return card_watch_.reset();
  }
  std::vector<GateRank> ranks;
  const std::vector<TreeProcess> all = gate_->Passed() ? std::vector<TreeProcess>() : Descendants(getpid());
  for (const Rank& rank : group_->ranks()) {
    const PlannedRank& planned = plan_->ranks[static_cast<std::size_t>(rank.local_rank)];
    GateRank member{rank.rank, static_cast<int>(*planned.placement.card), {rank.pid}};
    for (const TreeProcess& process : all) {
      const auto& mine = member.processes;
      if (std::find(mine.begin(), mine.end(), process.parent) != mine.end()) member.processes.push_back(process.pid);
    }
    ranks.push_back(std::move(member));
  }
  const GateVerdict verdict = gate_->Verdict(ranks);
  if (verdict.all_work) {
    Say(ranks.size() == 1 ? std::string("the card works: it was seen above 0 %")
                          : fmt::format("every card works: {} ranks on {} distinct cards, each above 0 %", ranks.size(),
                                        gate_->size()));
  }
  for (const std::string& line : verdict.lines) Say((verdict.cannot_tell ? "warning: " : "WARNING: ") + line);
  gate_.reset();
  card_watch_.reset();
  const bool idle = !verdict.all_work && !verdict.cannot_tell;
  if (idle && plan_->flags.idle_card == job::IdleCardPolicy::kFail) {
    Say("error: stopping the run, as --idle-card fail asks");
    idle_failed_ = true;
    BeginStop(SIGTERM, plan_->flags.grace);
  }
}

}  // namespace fulldeck::launcher
