#include "collectives/steps.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace fulldeck::collectives {
namespace {

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

bool AnyOnCard(const Engine& engine) {
  for (int rank = 0; rank < engine.size(); ++rank) {
    if (engine.RecordOf(rank).place.load(std::memory_order_relaxed) == kOnCard) return true;
  }
  return false;
}

// Steps with their times written down: of a copy of a card as long as it took there, of everything else between call
// and return.
class TracedSteps {
 public:
  TracedSteps(Engine& engine, Steps& steps) : engine_(engine), steps_(steps), traced_(engine.traced()) {
    if (traced_) steps_.Measure();
  }

  base::Result<void> StartIn(std::uint64_t piece, int slot) {
    if (!traced_) return steps_.StartIn(piece, slot);
    const std::uint64_t begin = NowNs();
    base::Result<void> result = steps_.StartIn(piece, slot);
    in_.at(piece % in_.size()) = NowNs() - begin;
    return result;
  }
  base::Result<void> FinishIn(std::uint64_t piece) {
    base::Result<void> result = steps_.FinishIn(piece);
    if (traced_) Tell(TraceEvent::Kind::kIn, piece, steps_.InTook(piece), in_.at(piece % in_.size()));
    return result;
  }
  void Reduce(int level, std::uint64_t piece, int slot) {
    const std::uint64_t begin = traced_ ? NowNs() : 0;
    steps_.Reduce(level, piece, slot);
    if (traced_) engine_.Trace(TraceEvent::Kind::kReduce, piece, begin);
  }
  base::Result<void> StartOut(std::uint64_t piece, int slot) {
    if (!traced_) return steps_.StartOut(piece, slot);
    const std::uint64_t begin = NowNs();
    base::Result<void> result = steps_.StartOut(piece, slot);
    out_.at(piece % out_.size()) = NowNs() - begin;
    return result;
  }
  base::Result<void> FinishOut(std::uint64_t piece) {
    base::Result<void> result = steps_.FinishOut(piece);
    if (traced_) Tell(TraceEvent::Kind::kOut, piece, steps_.OutTook(piece), out_.at(piece % out_.size()));
    return result;
  }

 private:
  void Tell(TraceEvent::Kind kind, std::uint64_t piece, std::optional<base::Duration> took, std::uint64_t in_host) {
    const std::uint64_t lasted = took ? static_cast<std::uint64_t>(took->count()) : in_host;
    engine_.Trace(kind, piece, NowNs() - lasted);
  }

  Engine& engine_;
  Steps& steps_;
  bool traced_;
  std::array<std::uint64_t, kStagingTickets> in_{};  // nanoseconds that StartIn took
  std::array<std::uint64_t, kStagingTickets> out_{};
};

Status CopyFailed(Engine& engine, const base::Error& error) {
  return engine.Fail(FULLDECK_ERROR_SYSTEM, "group \"" + engine.name() + "\": rank " + std::to_string(engine.rank()) +
                                                " could not copy its data: " + error.message);
}

}  // namespace

Status RunPieces(Engine& engine, Steps& steps, std::uint64_t pieces, int levels) {
  if (Status status = BringFirstPiece(engine, steps); !status.ok()) return status;
  if (Status status = MeetAtFirstGate(engine); !status.ok()) return status;
  return GoOn(engine, steps, pieces, levels);
}

Status BringFirstPiece(Engine& engine, Steps& given) {
  TracedSteps steps(engine, given);
  if (base::Result<void> done = steps.StartIn(0, engine.first_slot()); !done) return CopyFailed(engine, done.error());
  if (base::Result<void> done = steps.FinishIn(0); !done) return CopyFailed(engine, done.error());
  return {};
}

Status MeetAtFirstGate(Engine& engine) {
  if (Status status = engine.Gate(); !status.ok()) return status;
  return engine.CompareCalls();
}

Status GoOn(Engine& engine, Steps& given, std::uint64_t pieces, int levels) {
  TracedSteps steps(engine, given);
  const bool cards = AnyOnCard(engine);
  if (cards) {
    if (Status status = engine.ReserveForCards(); !status.ok()) return status;
  }
  const int nodes = engine.levels().levels();
  const SlotOrder order(engine.first_slot(), cards ? SlotsForCards(nodes) : SlotsForMemory(nodes));
  const std::uint64_t depth = static_cast<std::uint64_t>(levels);
  const std::uint64_t last_stage = pieces + depth;
  std::uint64_t started = 1;
  std::uint64_t finished_out = 0;
  for (std::uint64_t stage = 1; stage <= last_stage; ++stage) {
    const std::uint64_t start_until = std::min(pieces, stage + (cards ? 2 : 1));
    for (; started < start_until; ++started) {
      if (base::Result<void> done = steps.StartIn(started, order.At(started)); !done)
        return CopyFailed(engine, done.error());
    }
    for (int level = 1; level <= levels; ++level) {
      const auto behind = static_cast<std::uint64_t>(level);
      if (stage < behind || stage - behind >= pieces) continue;
      steps.Reduce(level, stage - behind, order.At(stage - behind));
    }
    std::uint64_t started_out = 0;
    if (stage > depth) {
      const std::uint64_t piece = stage - depth - 1;
      if (base::Result<void> done = steps.StartOut(piece, order.At(piece)); !done)
        return CopyFailed(engine, done.error());
      started_out = piece + 1;
    }
    // Behind the last gate nobody knows how far the others are, so there all but the last piece must be out.
    const bool finish_all = !cards || stage + 1 >= last_stage;
    const std::uint64_t finish_until = finish_all || started_out == 0 ? started_out : started_out - 1;
    for (; finished_out < finish_until; ++finished_out) {
      if (base::Result<void> done = steps.FinishOut(finished_out); !done) return CopyFailed(engine, done.error());
    }
    if (stage < pieces) {
      if (base::Result<void> done = steps.FinishIn(stage); !done) return CopyFailed(engine, done.error());
    }
    if (stage == last_stage) break;
    if (Status status = engine.Gate(); !status.ok()) return status;
  }
  engine.SetLastSlot(order.At(pieces - 1));
  return {};
}

}  // namespace fulldeck::collectives
