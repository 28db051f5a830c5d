// all_reduce, reduce and reduce_scatter.
#include "collectives/calls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/kernels/reduce_kernel.h"
#include "collectives/memory/chunks.h"
#include "collectives/memory/copying.h"
#include "collectives/memory/staged_copy.h"
#include "collectives/pipeline.h"

namespace fulldeck::collectives {
namespace {

// Shorter calls finish before a sleeping helper has woken up.
constexpr std::uint64_t kWorthHelp = std::uint64_t{2} << 20;

using Sources = std::array<const std::byte*, kMaxGroupSize>;
using Outputs = std::array<std::byte*, kMaxGroupSize>;

// Common to all reductions: the kernel, and recording the first result that is not finite.
// Invariant: every element is reduced by one kernel call (or one chain of levels) over its sources in rank order. How a
// range is split into shares, chunks and parts only decides who computes an element, never its bits.
class Reducer {
 public:
  Reducer(Engine& engine, const Call& call)
      : engine_(engine),
        kernel_(KernelFor(engine.instruction_set(), call.datatype, call.reduction)),
        element_(BytesOf(call.datatype)),
        check_(engine.check_finite() && IsFloat(call.datatype)),
        parts_(call.count * element_ < kWorthHelp ? 1 : engine.helper().parts()) {}

  std::uint64_t element_bytes() const { return element_; }
  // Runs work(part, parts) for every part concurrently; uses the helper thread if the call is long enough.
  template <class Work>
  void Together(Work work) {
    if (parts_ == 1) {
      work(0, 1);
    } else {
      engine_.helper().Run([&](int part) { work(part, parts_); });
    }
  }

  // Reduces one range whose sources are those of the ranks starting with `first_rank`. `first_element`: index of its
  // first element in the result. Long ranges are shared with the helper.
  void Run(const Sources& sources, int source_count, int first_rank, const Outputs& outputs, int output_count,
           std::uint64_t count, std::uint64_t first_element) {
    if (parts_ == 1) {
      RecordHit(Part(sources, source_count, outputs, output_count, {0, count}), first_rank, first_element);
      return;
    }
    std::array<std::optional<NonfiniteHit>, 2> hits;
    Together([&](int part, int parts) {
      hits.at(static_cast<std::size_t>(part)) =
          Part(sources, source_count, outputs, output_count, ShareOf(count, element_, part, parts));
    });
    RecordHit(hits[0] ? hits[0] : hits[1], first_rank, first_element);
  }

  // Runs one of several levels. The last one (without `partial`) writes the result; returns the first index that is not
  // finite.
  std::optional<std::uint64_t> RunLevel(const Sources& sources, int source_count, const std::byte* prefix,
                                        std::byte* partial, std::byte* output, std::uint64_t count) {
    ReduceJob job;
    job.sources = sources.data();
    job.source_count = source_count;
    job.outputs = &output;
    job.output_count = partial == nullptr ? 1 : 0;
    job.count = count;
    job.prefix = prefix;
    job.partial = partial;
    job.divisor = engine_.size();
    job.find_nonfinite = check_ && partial == nullptr;
    const std::optional<NonfiniteHit> hit = kernel_(job);
    return hit ? std::optional<std::uint64_t>(hit->index) : std::nullopt;
  }

 private:
  // Thread safe.
  std::optional<NonfiniteHit> Part(const Sources& sources, int source_count, const Outputs& outputs, int output_count,
                                   Range range) const {
    Sources shifted;
    for (int i = 0; i < source_count; ++i) shifted[i] = sources[i] + range.begin * element_;
    Outputs shifted_outputs;
    for (int i = 0; i < output_count; ++i) shifted_outputs[i] = outputs[i] + range.begin * element_;
    ReduceJob job;
    job.sources = shifted.data();
    job.source_count = source_count;
    job.outputs = shifted_outputs.data();
    job.output_count = output_count;
    job.count = range.count;
    job.divisor = engine_.size();
    job.find_nonfinite = check_;
    std::optional<NonfiniteHit> hit = kernel_(job);
    if (hit) hit->index += range.begin;
    return hit;
  }

  void RecordHit(const std::optional<NonfiniteHit>& hit, int first_rank, std::uint64_t first_element) {
    if (!hit) return;
    engine_.RecordNonfinite(first_element + hit->index, hit->source < 0 ? -1 : first_rank + hit->source);
  }

  Engine& engine_;
  ReduceFunction kernel_;
  std::uint64_t element_;
  bool check_;
  int parts_;
};

// Invariant: a member writes only its own slots, its own result area and its own output. A barrier separates filling
// the slots (StartIn) from reading those of other members (Reduce), and another one that from reading their results
// (StartOut). Input and output may be the same buffer: Reduce and StartOut of a chunk overwrite only input of that
// chunk, namely the own share, which the kernel may reduce in place, and the other shares, which are in the slot since
// StartIn.
// all_reduce and reduce: every member reduces its share of each chunk, and the members that need the result collect the
// shares.
class SharedReduction final : public PipelineStages {
 public:
  SharedReduction(Engine& engine, const Call& call, Buffer input, Buffer output, bool needs_result)
      : engine_(engine),
        call_(call),
        reducer_(engine, call),
        in_(input),
        out_(output),
        needs_result_(needs_result),
        streaming_(Bytes(call.count) * static_cast<std::uint64_t>(engine.size()) > engine.cache_bytes()),
        chunks_(call.count, reducer_.element_bytes(), engine.layout().chunk_bytes) {}

  std::uint64_t chunks() const { return chunks_.number(); }

  base::Result<void> StartIn(std::uint64_t chunk, int slot) override {
    const Range range = chunks_.At(chunk);
    std::byte* to = SlotOf(engine_.rank(), slot);
    if (in_.on_card()) return in_.StartIn(to, Bytes(range.begin), Bytes(range.count), chunk);
    // The own share is read in place: no other member needs it, so it is not copied.
    const Range share = Share(range, engine_.rank());
    const std::uint64_t behind = share.begin + share.count;
    const std::uint64_t together = share.begin + range.count - behind;
    reducer_.Together([&](int part, int parts) {
      const Range own = ShareOf(together, reducer_.element_bytes(), part, parts);
      const std::uint64_t end = own.begin + own.count;
      const std::uint64_t middle = std::clamp(share.begin, own.begin, end);
      CopyIn(to, range.begin, own.begin, middle - own.begin);
      CopyIn(to, range.begin, middle + share.count, end - middle);
    });
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t chunk) override { return in_.FinishIn(chunk); }

  void Reduce(int /*level*/, std::uint64_t chunk, int slot) override {
    const Range range = chunks_.At(chunk);
    const Range share = Share(range, engine_.rank());
    Sources sources;
    for (int rank = 0; rank < engine_.size(); ++rank) {
      sources[rank] = rank == engine_.rank() && !in_.on_card() ? in_.host() + Bytes(range.begin + share.begin)
                                                               : SlotOf(rank, slot) + Bytes(share.begin);
    }
    Outputs outputs;
    int output_count = 0;
    const bool direct = needs_result_ && !out_.on_card();
    if (direct) outputs[output_count++] = out_.host() + Bytes(range.begin + share.begin);
    const bool others_need_it = call_.root < 0 ? engine_.size() > 1 : !needs_result_;
    if (others_need_it || !direct) outputs[output_count++] = ResultOf(engine_.rank(), slot);
    reducer_.Run(sources, engine_.size(), 0, outputs, output_count, share.count, range.begin + share.begin);
  }

  base::Result<void> StartOut(std::uint64_t chunk, int slot) override {
    if (!needs_result_) return {};
    const Range range = chunks_.At(chunk);
    if (!out_.on_card()) {
      reducer_.Together([&](int part, int parts) {
        for (int rank = part; rank < engine_.size(); rank += parts) {
          if (rank != engine_.rank()) CopyOut(range.begin, Share(range, rank), ResultOf(rank, slot));
        }
      });
      return {};
    }
    for (int rank = 0; rank < engine_.size(); ++rank) {
      const Range share = Share(range, rank);
      base::Result<void> done =
          out_.StartOut(Bytes(range.begin + share.begin), ResultOf(rank, slot), Bytes(share.count), chunk);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t chunk) override { return out_.FinishOut(chunk); }

  void Measure() override {
    in_.Measure();
    out_.Measure();
  }
  std::optional<base::Duration> InTook(std::uint64_t chunk) const override { return in_.InTook(chunk); }
  std::optional<base::Duration> OutTook(std::uint64_t chunk) const override { return out_.OutTook(chunk); }

 private:
  std::uint64_t Bytes(std::uint64_t elements) const { return elements * reducer_.element_bytes(); }
  Range Share(const Range& range, int rank) const {
    return ShareOf(range.count, reducer_.element_bytes(), rank, engine_.size());
  }
  void CopyIn(std::byte* slot, std::uint64_t first, std::uint64_t begin, std::uint64_t count) const {
    if (count > 0) std::memcpy(slot + Bytes(begin), in_.host() + Bytes(first + begin), Bytes(count));
  }
  void CopyOut(std::uint64_t first, const Range& share, const std::byte* result) {
    std::byte* to = out_.host() + Bytes(first + share.begin);
    if (share.count == 0) return;
    if (streaming_) {
      CopyStreaming(to, result, Bytes(share.count));
    } else {
      std::memcpy(to, result, Bytes(share.count));
    }
  }
  std::byte* SlotOf(int rank, int slot) const { return engine_.Segment(rank) + engine_.layout().Slot(slot); }
  std::byte* ResultOf(int rank, int slot) const { return engine_.Segment(rank) + engine_.layout().Result(slot); }

  Engine& engine_;
  const Call& call_;
  Reducer reducer_;
  StagedCopy in_;
  StagedCopy out_;
  bool needs_result_;
  bool streaming_;
  Chunks chunks_;
};

// The same across several NUMA nodes: level n is the turn of node n, which continues from the partial result of the
// previous node; one more level copies the result from the last node to the others.
//
// Invariant: a member writes only its own segment and its own output, and a barrier separates the levels, so a partial
// result is complete before the next node reads it. The nodes' ranks are contiguous and in order (LevelsOf), so the
// accumulators take the inputs in rank order and the bits equal those of SharedReduction.
class NodeReduction final : public PipelineStages {
 public:
  NodeReduction(Engine& engine, const Call& call, Buffer input, Buffer output, bool needs_result)
      : engine_(engine),
        reducer_(engine, call),
        accumulator_(AccumulatorBytes(call.datatype)),
        datatype_(call.datatype),
        node_(engine.levels().NodeOf(engine.rank())),
        in_(input),
        out_(output),
        needs_result_(needs_result),
        chunks_(call.count, reducer_.element_bytes(), engine.layout().chunk_bytes) {}

  std::uint64_t chunks() const { return chunks_.number(); }
  int reduce_levels() const { return Last() + 2; }

  base::Result<void> StartIn(std::uint64_t chunk, int slot) override {
    const Range range = chunks_.At(chunk);
    return in_.StartIn(Area(engine_.rank(), engine_.layout().Slot(slot)), Bytes(range.begin), Bytes(range.count),
                       chunk);
  }
  base::Result<void> FinishIn(std::uint64_t chunk) override { return in_.FinishIn(chunk); }

  void Reduce(int level, std::uint64_t chunk, int slot) override {
    const Range range = chunks_.At(chunk);
    const Range own = Share(range, node_, engine_.rank());
    if (level == Last() + 2) {
      if (node_ == Last()) return;
      ForEachOverlap(range, own, Last(),
                     [&](int rank, std::uint64_t share_begin, std::uint64_t begin, std::uint64_t count) {
                       std::copy_n(Area(rank, engine_.layout().Result(slot)) + Bytes(share_begin), Bytes(count),
                                   Area(engine_.rank(), engine_.layout().Fetched(slot)) + Bytes(begin - own.begin));
                     });
      return;
    }
    if (level != node_ + 1 || own.count == 0) return;
    if (node_ == 0) {
      RunPart(range, own, slot, nullptr, own.begin, own.count);
      return;
    }
    ForEachOverlap(range, own, node_ - 1,
                   [&](int rank, std::uint64_t share_begin, std::uint64_t begin, std::uint64_t count) {
                     RunPart(range, own, slot, Area(rank, engine_.layout().Partial(slot)) + share_begin * accumulator_,
                             begin, count);
                   });
  }

  base::Result<void> StartOut(std::uint64_t chunk, int slot) override {
    if (!needs_result_) return {};
    const Range range = chunks_.At(chunk);
    const NodeLevels::Node& node = engine_.levels().nodes[static_cast<std::size_t>(node_)];
    for (int rank = node.first; rank < node.first + node.count; ++rank) {
      const Range share = Share(range, node_, rank);
      const std::uint64_t at = node_ == Last() ? engine_.layout().Result(slot) : engine_.layout().Fetched(slot);
      base::Result<void> done =
          out_.StartOut(Bytes(range.begin + share.begin), Area(rank, at), Bytes(share.count), chunk);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t chunk) override { return out_.FinishOut(chunk); }

 private:
  int Last() const { return engine_.levels().levels() - 1; }
  std::uint64_t Bytes(std::uint64_t elements) const { return elements * reducer_.element_bytes(); }
  std::byte* Area(int rank, std::uint64_t offset) const { return engine_.Segment(rank) + offset; }
  Range Share(const Range& range, int node, int rank) const {
    const NodeLevels::Node& ranks = engine_.levels().nodes[static_cast<std::size_t>(node)];
    return ShareOf(range.count, reducer_.element_bytes(), rank - ranks.first, ranks.count);
  }

  // Calls visit for each rank of `node` whose share overlaps `own`: with the start of the overlap in that share, its
  // start in the chunk, and its length.
  template <class Visit>
  void ForEachOverlap(const Range& range, const Range& own, int node, Visit visit) const {
    const NodeLevels::Node& ranks = engine_.levels().nodes[static_cast<std::size_t>(node)];
    for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
      const Range share = Share(range, node, rank);
      const std::uint64_t begin = std::max(own.begin, share.begin);
      const std::uint64_t end = std::min(own.begin + own.count, share.begin + share.count);
      if (begin < end) visit(rank, begin - share.begin, begin, end - begin);
    }
  }

  void RunPart(const Range& range, const Range& own, int slot, const std::byte* prefix, std::uint64_t begin,
               std::uint64_t count) {
    const NodeLevels::Node& ranks = engine_.levels().nodes[static_cast<std::size_t>(node_)];
    Sources sources;
    for (int i = 0; i < ranks.count; ++i) {
      sources[i] = Area(ranks.first + i, engine_.layout().Slot(slot)) + Bytes(begin);
    }
    std::byte* partial = nullptr;
    if (node_ < Last()) {
      partial = Area(engine_.rank(), engine_.layout().Partial(slot)) + (begin - own.begin) * accumulator_;
    }
    std::byte* output = Area(engine_.rank(), engine_.layout().Result(slot)) + Bytes(begin - own.begin);
    const std::optional<std::uint64_t> hit = reducer_.RunLevel(sources, ranks.count, prefix, partial, output, count);
    if (!hit) return;
    // All inputs are still in their slots.
    const std::uint64_t element = begin + *hit;
    int cause = -1;
    for (int rank = 0; rank < engine_.size() && cause < 0; ++rank) {
      if (!IsFinite(Area(rank, engine_.layout().Slot(slot)) + Bytes(element), datatype_)) cause = rank;
    }
    engine_.RecordNonfinite(range.begin + element, cause);
  }

  Engine& engine_;
  Reducer reducer_;
  std::uint64_t accumulator_;
  Datatype datatype_;
  int node_;
  StagedCopy in_;
  StagedCopy out_;
  bool needs_result_;
  Chunks chunks_;
};

// A short call: every member that needs the result reduces all of it. Only one barrier.
class DirectReduction final : public PipelineStages {
 public:
  DirectReduction(Engine& engine, const Call& call, Buffer input, Buffer output, bool needs_result)
      : engine_(engine), call_(call), reducer_(engine, call), in_(input), out_(output), needs_result_(needs_result) {}

  base::Result<void> StartIn(std::uint64_t chunk, int slot) override {
    return in_.StartIn(engine_.Segment(engine_.rank()) + engine_.layout().Slot(slot), 0,
                       call_.count * reducer_.element_bytes(), chunk);
  }
  base::Result<void> FinishIn(std::uint64_t chunk) override { return in_.FinishIn(chunk); }
  base::Result<void> StartOut(std::uint64_t chunk, int slot) override {
    if (!needs_result_ || call_.count == 0) return {};
    Sources sources;
    for (int rank = 0; rank < engine_.size(); ++rank) {
      sources[rank] = engine_.Segment(rank) + engine_.layout().Slot(slot);
    }
    Outputs outputs;
    outputs[0] = out_.on_card() ? engine_.Segment(engine_.rank()) + engine_.layout().Result(slot) : out_.host();
    reducer_.Run(sources, engine_.size(), 0, outputs, 1, call_.count, 0);
    return out_.on_card() ? out_.StartOut(0, outputs[0], call_.count * reducer_.element_bytes(), chunk)
                          : base::Result<void>();
  }
  base::Result<void> FinishOut(std::uint64_t chunk) override { return out_.FinishOut(chunk); }

 private:
  Engine& engine_;
  const Call& call_;
  Reducer reducer_;
  StagedCopy in_;
  StagedCopy out_;
  bool needs_result_;
};

// The data of all members is in shared memory, and the result goes to the same place: every member reduces its share of
// the whole and writes it to all members' buffers. Nothing is copied.
//
// Invariant: the shares are disjoint, and a member accesses only its own share, in all buffers. So no member reads what
// another one writes. The caller passes a barrier before (all members have entered the call) and after it (all shares
// are written).
void ReduceInPlace(Engine& engine, const Call& call) {
  Reducer reducer(engine, call);
  const Range share = ShareOf(call.count, reducer.element_bytes(), engine.rank(), engine.size());
  Sources sources;
  Outputs outputs;
  for (int rank = 0; rank < engine.size(); ++rank) {
    const std::uint64_t place = engine.RecordOf(rank).place.load(std::memory_order_relaxed);
    outputs[rank] = engine.Segment(rank) + place + share.begin * reducer.element_bytes();
    sources[rank] = outputs[rank];
  }
  const auto begin = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  reducer.Run(sources, engine.size(), 0, outputs, engine.size(), share.count, share.begin);
  if (engine.traced()) engine.Trace(TraceEvent::Kind::kReduce, 0, begin);
}

// reduce_scatter: every slot has a range per member, and each member reduces its own ranges of all slots.
class ScatteredReduction final : public PipelineStages {
 public:
  ScatteredReduction(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output)
      : engine_(engine),
        reducer_(engine, call),
        out_(output),
        rank_chunk_bytes_(engine.layout().chunk_bytes / static_cast<std::uint64_t>(engine.size()) / kRangeAlignment *
                          kRangeAlignment),
        chunks_(call.count, reducer_.element_bytes(), rank_chunk_bytes_) {
    ins_.reserve(inputs.size());
    for (const Buffer& input : inputs) ins_.emplace_back(input);
  }

  std::uint64_t chunks() const { return chunks_.number(); }

  base::Result<void> StartIn(std::uint64_t chunk, int slot) override {
    const Range range = chunks_.At(chunk);
    for (int rank = 0; rank < engine_.size(); ++rank) {
      StagedCopy& in = ins_[static_cast<std::size_t>(rank)];
      if (rank == engine_.rank() && !in.on_card()) continue;
      base::Result<void> done =
          in.StartIn(Part(engine_.rank(), slot, rank), Bytes(range.begin), Bytes(range.count), chunk);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t chunk) override {
    for (StagedCopy& in : ins_) {
      if (base::Result<void> done = in.FinishIn(chunk); !done) return done;
    }
    return {};
  }
  base::Result<void> StartOut(std::uint64_t chunk, int slot) override {
    const Range range = chunks_.At(chunk);
    const StagedCopy& own = ins_[static_cast<std::size_t>(engine_.rank())];
    Sources sources;
    for (int rank = 0; rank < engine_.size(); ++rank) {
      sources[rank] =
          rank == engine_.rank() && !own.on_card() ? own.host() + Bytes(range.begin) : Part(rank, slot, engine_.rank());
    }
    Outputs outputs;
    outputs[0] = out_.on_card() ? engine_.Segment(engine_.rank()) + engine_.layout().Result(slot)
                                : out_.host() + Bytes(range.begin);
    reducer_.Run(sources, engine_.size(), 0, outputs, 1, range.count, range.begin);
    return out_.on_card() ? out_.StartOut(Bytes(range.begin), outputs[0], Bytes(range.count), chunk)
                          : base::Result<void>();
  }
  base::Result<void> FinishOut(std::uint64_t chunk) override { return out_.FinishOut(chunk); }

 private:
  std::uint64_t Bytes(std::uint64_t elements) const { return elements * reducer_.element_bytes(); }
  std::byte* Part(int from, int slot, int to) const {
    return engine_.Segment(from) + engine_.layout().Slot(slot) + static_cast<std::uint64_t>(to) * rank_chunk_bytes_;
  }

  Engine& engine_;
  Reducer reducer_;
  std::vector<StagedCopy> ins_;
  StagedCopy out_;
  std::uint64_t rank_chunk_bytes_;
  Chunks chunks_;
};

bool IsShared(const Engine& engine, int rank) {
  const std::uint64_t place = engine.RecordOf(rank).place.load(std::memory_order_relaxed);
  return place != kNotShared && place != kOnCard;
}

int CountShared(const Engine& engine) {
  int shared = 0;
  for (int rank = 0; rank < engine.size(); ++rank) shared += IsShared(engine, rank) ? 1 : 0;
  return shared;
}

// The stages of one reduction, and its number of levels.
struct ReductionPlan {
  std::unique_ptr<PipelineStages> stages;
  std::uint64_t chunks = 1;
  int levels = 0;
};

ReductionPlan PlanOf(Engine& engine, const Call& call, Buffer input, Buffer output, bool needs_result) {
  if (call.count * BytesOf(call.datatype) <= engine.direct_bytes()) {
    return {std::make_unique<DirectReduction>(engine, call, input, output, needs_result), 1, 0};
  }
  if (engine.levels().levels() > 1) {
    auto stages = std::make_unique<NodeReduction>(engine, call, input, output, needs_result);
    const std::uint64_t chunks = stages->chunks();
    const int levels = stages->reduce_levels();
    return {std::move(stages), chunks, levels};
  }
  auto stages = std::make_unique<SharedReduction>(engine, call, input, output, needs_result);
  const std::uint64_t chunks = stages->chunks();
  return {std::move(stages), chunks, 1};
}

}  // namespace

Status RunAllReduce(Engine& engine, const Call& call, Buffer input, Buffer output) {
  const ReductionPlan plan = PlanOf(engine, call, input, output, true);
  if (plan.levels == 0) return RunPipeline(engine, *plan.stages, plan.chunks, 0);
  // Whether all members have their data in shared memory is known after the first barrier. A member with private memory
  // has loaded its first chunk by then; the others load it only if needed.
  const bool shared = IsShared(engine, engine.rank());
  if (!shared) {
    if (Status status = LoadFirstChunk(engine, *plan.stages); !status.ok()) return status;
  }
  if (Status status = FirstBarrier(engine); !status.ok()) return status;
  // The records were written before the first barrier, so all members compute the same count and take the same branch:
  // they pass the same number of barriers.
  const int sharing = CountShared(engine);
  if (sharing == engine.size()) {
    ReduceInPlace(engine, call);
    return engine.Barrier();
  }
  if (sharing > 0) {
    if (shared) {
      if (Status status = LoadFirstChunk(engine, *plan.stages); !status.ok()) return status;
    }
    // The members with shared memory have only now loaded their first chunk; ContinuePipeline requires that all have.
    if (Status status = engine.Barrier(); !status.ok()) return status;
  }
  return ContinuePipeline(engine, *plan.stages, plan.chunks, plan.levels);
}

Status RunReduce(Engine& engine, const Call& call, Buffer input, Buffer output) {
  const ReductionPlan plan = PlanOf(engine, call, input, output, engine.rank() == call.root);
  return RunPipeline(engine, *plan.stages, plan.chunks, plan.levels);
}

Status RunReduceScatter(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output) {
  ScatteredReduction stages(engine, call, inputs, output);
  return RunPipeline(engine, stages, stages.chunks(), 0);
}

}  // namespace fulldeck::collectives
