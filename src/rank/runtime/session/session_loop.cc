#include "runtime/session/session_loop.h"

#include <algorithm>

namespace fulldeck::runtime {
namespace {

constexpr std::chrono::milliseconds kPeriod(200);

}  // namespace

LoopClock::LoopClock(fulldeck_board* board) : board_(board) {
  figures_.struct_bytes = sizeof figures_;
}

void LoopClock::CountUntil(Clock::time_point now) {
  const auto passed = static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(now - since_).count()));
  since_ = now;
  switch (phase_) {
    case Phase::kData:
      figures_.data_ns += passed;
      break;
    case Phase::kCompute:
      compute_ns_ += passed;
      break;
    case Phase::kCommunication:
      communication_ns_ += passed;
      break;
    case Phase::kCheckpoint:
      figures_.checkpoint_ns += passed;
      break;
    default:
      break;
  }
}

void LoopClock::Enter(Phase phase) {
  CountUntil(Clock::now());
  phase_ = phase;
  fulldeck_board_phase(board_, static_cast<int>(phase));
}

void LoopClock::BeginStep() {
  if (phase_ != Phase::kData) Enter(Phase::kData);
}

void LoopClock::Done(std::optional<double> loss, std::uint64_t samples) {
  Enter(Phase::kData);
  figures_.step += 1;
  figures_.samples += samples;
  figures_.has_loss = loss ? 1 : 0;
  figures_.loss = loss.value_or(0);
  const std::uint64_t waited = waited_ns_.load(std::memory_order_relaxed);
  figures_.compute_ns = compute_ns_ - std::min(compute_ns_, waited);
  figures_.communication_ns = communication_ns_ + waited;
  fulldeck_board_step(board_, &figures_);
  figures_.batch_fingerprint = 0;
  figures_.parameters_fingerprint = 0;
  if (periodic_work_ && since_ >= next_time_) {
    periodic_work_();
    next_time_ = since_ + kPeriod;
  }
}

void LoopClock::Abandon() {
  Enter(Phase::kOther);
}

void LoopClock::AddCommunication(std::chrono::nanoseconds time) {
  if (time.count() > 0) waited_ns_.fetch_add(static_cast<std::uint64_t>(time.count()), std::memory_order_relaxed);
}

void LoopClock::SetProgress(std::uint64_t steps_done, std::uint64_t total_steps, std::uint64_t epoch) {
  figures_.step = std::max(figures_.step, steps_done);
  figures_.total_steps = total_steps;
  figures_.epoch = epoch;
}

void LoopClock::SetFingerprints(std::uint64_t batch, std::uint64_t parameters) {
  if (batch != 0) figures_.batch_fingerprint = batch;
  if (parameters != 0) figures_.parameters_fingerprint = parameters;
}

}  // namespace fulldeck::runtime
