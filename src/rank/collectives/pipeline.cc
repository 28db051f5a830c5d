#include "collectives/pipeline.h"

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

// PipelineStages with traced times: for a copy of a card, the time it took on the card; for everything else, the time
// of the call.
class TracedStages {
 public:
  TracedStages(Engine& engine, PipelineStages& stages) : engine_(engine), stages_(stages), traced_(engine.traced()) {
    if (traced_) stages_.Measure();
  }

  base::Result<void> StartIn(std::uint64_t chunk, int slot) {
    if (!traced_) return stages_.StartIn(chunk, slot);
    const std::uint64_t begin = NowNs();
    base::Result<void> result = stages_.StartIn(chunk, slot);
    in_.at(chunk % in_.size()) = NowNs() - begin;
    return result;
  }
  base::Result<void> FinishIn(std::uint64_t chunk) {
    base::Result<void> result = stages_.FinishIn(chunk);
    if (traced_) RecordCopy(TraceEvent::Kind::kIn, chunk, stages_.InTook(chunk), in_.at(chunk % in_.size()));
    return result;
  }
  void Reduce(int level, std::uint64_t chunk, int slot) {
    const std::uint64_t begin = traced_ ? NowNs() : 0;
    stages_.Reduce(level, chunk, slot);
    if (traced_) engine_.Trace(TraceEvent::Kind::kReduce, chunk, begin);
  }
  base::Result<void> StartOut(std::uint64_t chunk, int slot) {
    if (!traced_) return stages_.StartOut(chunk, slot);
    const std::uint64_t begin = NowNs();
    base::Result<void> result = stages_.StartOut(chunk, slot);
    out_.at(chunk % out_.size()) = NowNs() - begin;
    return result;
  }
  base::Result<void> FinishOut(std::uint64_t chunk) {
    base::Result<void> result = stages_.FinishOut(chunk);
    if (traced_) RecordCopy(TraceEvent::Kind::kOut, chunk, stages_.OutTook(chunk), out_.at(chunk % out_.size()));
    return result;
  }

 private:
  void RecordCopy(TraceEvent::Kind kind, std::uint64_t chunk, std::optional<base::Duration> took,
                  std::uint64_t in_host) {
    const std::uint64_t lasted = took ? static_cast<std::uint64_t>(took->count()) : in_host;
    engine_.Trace(kind, chunk, NowNs() - lasted);
  }

  Engine& engine_;
  PipelineStages& stages_;
  bool traced_;
  std::array<std::uint64_t, kStagingTickets> in_{};  // nanoseconds of StartIn
  std::array<std::uint64_t, kStagingTickets> out_{};
};

Status CopyFailed(Engine& engine, const base::Error& error) {
  return engine.Fail(FULLDECK_ERROR_SYSTEM, "group \"" + engine.name() + "\": rank " + std::to_string(engine.rank()) +
                                                " could not copy its data: " + error.message);
}

}  // namespace

Status RunPipeline(Engine& engine, PipelineStages& stages, std::uint64_t chunks, int levels) {
  if (Status status = LoadFirstChunk(engine, stages); !status.ok()) return status;
  if (Status status = FirstBarrier(engine); !status.ok()) return status;
  return ContinuePipeline(engine, stages, chunks, levels);
}

Status LoadFirstChunk(Engine& engine, PipelineStages& given) {
  TracedStages stages(engine, given);
  if (base::Result<void> done = stages.StartIn(0, engine.first_slot()); !done) return CopyFailed(engine, done.error());
  if (base::Result<void> done = stages.FinishIn(0); !done) return CopyFailed(engine, done.error());
  return {};
}

Status FirstBarrier(Engine& engine) {
  if (Status status = engine.Barrier(); !status.ok()) return status;
  return engine.CompareCalls();
}

Status ContinuePipeline(Engine& engine, PipelineStages& given, std::uint64_t chunks, int levels) {
  TracedStages stages(engine, given);
  const bool cards = AnyOnCard(engine);
  if (cards) {
    if (Status status = engine.ReserveForCards(); !status.ok()) return status;
  }
  const int nodes = engine.levels().levels();
  const SlotOrder order(engine.first_slot(), cards ? SlotsForCards(nodes) : SlotsForMemory(nodes));
  const std::uint64_t depth = static_cast<std::uint64_t>(levels);
  const std::uint64_t last_stage = chunks + depth;
  std::uint64_t started = 1;
  std::uint64_t finished_out = 0;
  for (std::uint64_t stage = 1; stage <= last_stage; ++stage) {
    const std::uint64_t start_until = std::min(chunks, stage + (cards ? 2 : 1));
    for (; started < start_until; ++started) {
      if (base::Result<void> done = stages.StartIn(started, order.At(started)); !done)
        return CopyFailed(engine, done.error());
    }
    for (int level = 1; level <= levels; ++level) {
      const auto behind = static_cast<std::uint64_t>(level);
      if (stage < behind || stage - behind >= chunks) continue;
      stages.Reduce(level, stage - behind, order.At(stage - behind));
    }
    std::uint64_t started_out = 0;
    if (stage > depth) {
      const std::uint64_t chunk = stage - depth - 1;
      if (base::Result<void> done = stages.StartOut(chunk, order.At(chunk)); !done)
        return CopyFailed(engine, done.error());
      started_out = chunk + 1;
    }
    // After the last barrier, the progress of the other members is unknown, so all chunks except the last must be
    // copied out before it.
    const bool finish_all = !cards || stage + 1 >= last_stage;
    const std::uint64_t finish_until = finish_all || started_out == 0 ? started_out : started_out - 1;
    for (; finished_out < finish_until; ++finished_out) {
      if (base::Result<void> done = stages.FinishOut(finished_out); !done) return CopyFailed(engine, done.error());
    }
    if (stage < chunks) {
      if (base::Result<void> done = stages.FinishIn(stage); !done) return CopyFailed(engine, done.error());
    }
    if (stage == last_stage) break;
    if (Status status = engine.Barrier(); !status.ok()) return status;
  }
  engine.SetLastSlot(order.At(chunks - 1));
  return {};
}

}  // namespace fulldeck::collectives
