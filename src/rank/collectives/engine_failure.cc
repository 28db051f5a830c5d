// How a group fails, and the text of its failure.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/clock.h"

#include "base/text.h"
#include "collectives/engine.h"

namespace fulldeck::collectives {
namespace {}  // namespace

Status Engine::Fail(int code, const std::string& text, int culprit) {
  FailureRecord& record = control_->failure;
  std::uint32_t none = 0;
  if (record.state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    record.code = code;
    record.culprit = culprit;
    record.text_bytes = static_cast<std::uint32_t>(std::min(text.size(), sizeof record.text));
    std::memcpy(record.text, text.data(), record.text_bytes);
    record.state.store(2, std::memory_order_release);  // pairs with Failed
    WakeSleepers(control_->barrier.released);
    for (int rank = 0; rank < size_; ++rank) Ring(Line(rank).doorbell.rings, Line(rank).doorbell.sleepers);
  }
  return Failed();
}

Status Engine::Failed() {
  const FailureRecord& record = control_->failure;
  std::uint32_t state = record.state.load(std::memory_order_acquire);  // pairs with the store in Fail
  if (state == 0) return {};
  const std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) return failure_;
  // Writing it takes microseconds; do not wait long for a member that died while writing it.
  for (int i = 0; state == 1 && i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state = record.state.load(std::memory_order_acquire);
  }
  if (state != 2) {
    failure_ = {FULLDECK_ERROR_PEER_LOST, "group \"" + name_ + "\": a member died while it told why the group failed"};
    return failure_;
  }
  const std::size_t bytes = std::min<std::size_t>(record.text_bytes, sizeof record.text);
  failure_ = {record.code == FULLDECK_OK ? FULLDECK_ERROR_ABORTED : record.code, std::string(record.text, bytes),
              record.culprit};
  return failure_;
}

// The board identifies a rank by its number in the whole run, which may be unknown for a member of a smaller group.
void Engine::ReportToBoard(const Status& status) const {
  int culprit = -1;
  if (status.culprit() >= 0 && status.culprit() < size_ && control_ != nullptr) {
    culprit = static_cast<int>(Line(status.culprit()).run_rank.load(std::memory_order_relaxed)) - 1;
  }
  board_->ReportError(status, culprit);
}

std::vector<int> Engine::MissingAt(std::uint32_t barrier) const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    // Pairs with the store in Barrier.
    if (static_cast<std::int32_t>(Line(rank).arrived.load(std::memory_order_acquire) - barrier) < 0)
      missing.push_back(rank);
  }
  return missing;
}

Status Engine::Health(std::uint32_t barrier) {
  if (Status failed = Failed(); !failed.ok()) return failed;
  // First find who is gone, then who is missing: a member that arrived at the barrier and then exited is not missing.
  const std::vector<int> gone = Gone();
  if (gone.empty()) return {};
  std::vector<int> lost;
  for (const int rank : MissingAt(barrier)) {
    if (std::binary_search(gone.begin(), gone.end(), rank)) lost.push_back(rank);
  }
  if (lost.empty()) return {};
  return Fail(FULLDECK_ERROR_PEER_LOST,
              GoneStatus(lost).text() + "\n  rank " + std::to_string(rank_) + " waited for " +
                  (lost.size() == 1 ? "it" : "them") + " in call " + std::to_string(sequence()) + ", " +
                  collectives::Describe(call_),
              lost.front());
}

Status Engine::CheckHealth() {
  if (Status failed = Failed(); !failed.ok()) return failed;
  const std::vector<int> gone = Gone();
  return gone.empty() ? Status() : GoneStatus(gone);
}

Status Engine::PeerHealth(int peer) {
  if (Status failed = Failed(); !failed.ok()) return failed;
  const std::vector<int> gone = Gone();
  if (peer < 0) return static_cast<int>(gone.size()) == size_ - 1 && size_ > 1 ? GoneStatus(gone) : Status();
  if (std::find(gone.begin(), gone.end(), peer) == gone.end()) return {};
  return GoneStatus({peer});
}

// Ranks that are dead or have left, in order, without this one.
std::vector<int> Engine::Gone() const {
  std::vector<int> gone = rendezvous_->watch.Dead();
  for (int rank = 0; rank < size_; ++rank) {
    if (Line(rank).left.load(std::memory_order_acquire) != 0) gone.push_back(rank);  // pairs with ~Engine
  }
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  gone.erase(std::remove(gone.begin(), gone.end(), rank_), gone.end());
  return gone;
}

Status Engine::GoneStatus(const std::vector<int>& gone) const {
  std::string text =
      "group \"" + name_ + "\": " + base::FormatRanks(gone) + (gone.size() == 1 ? " is gone." : " are gone.");
  for (const int rank : gone) {
    const bool left = Line(rank).left.load(std::memory_order_acquire) != 0;
    text += "\n  rank " + std::to_string(rank) + " " + (left ? "left the group" : "died") + "; it " +
            DescribeProgress(rank);
  }
  return {FULLDECK_ERROR_PEER_LOST, text, gone.front()};
}

std::string Engine::DescribeProgress(int rank) const {
  const MemberState& line = Line(rank);
  const std::uint64_t sequence = line.sequence.load(std::memory_order_relaxed);
  if (sequence == 0) return "has made no call yet";
  const MemberState::Record& record = line.records[sequence & 1];
  const Call call = Unpack(record.call.load(std::memory_order_relaxed), record.count.load(std::memory_order_relaxed));
  return std::string(line.in_call.load(std::memory_order_relaxed) != 0 ? "is in call " : "has finished call ") +
         std::to_string(sequence) + ", " + collectives::Describe(call);
}

std::string Engine::TimeoutText(std::uint32_t barrier) const {
  const std::vector<int> missing = MissingAt(barrier);
  std::string text = "group \"" + name_ + "\": call " + std::to_string(sequence()) + ", " +
                     collectives::Describe(call_) + ": waited " + base::FormatSeconds(timeout()) + " for " +
                     (missing.empty() ? std::string("ranks that have come by now") : base::FormatRanks(missing)) + ".";
  for (int rank = 0; rank < size_; ++rank) {
    text += "\n  rank " + std::to_string(rank) + " " + DescribeProgress(rank);
    if (std::find(missing.begin(), missing.end(), rank) != missing.end())
      text += " (" + rendezvous_->watch.Describe(rank) + ")";
  }
  return text;
}

}  // namespace fulldeck::collectives
