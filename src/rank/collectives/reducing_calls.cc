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
#include "collectives/memory/copying.h"
#include "collectives/memory/mover.h"
#include "collectives/memory/slices.h"
#include "collectives/steps.h"

namespace fulldeck::collectives {
namespace {

// Calls shorter than this are over before a helper that sleeps has woken up.
constexpr std::uint64_t kWorthHelp = std::uint64_t{2} << 20;

using Sources = std::array<const std::byte*, kLargestGroup>;
using Outputs = std::array<std::byte*, kLargestGroup>;

// What all reductions have in common: the kernel, and the note of the first result that is not finite.
class Reducer {
 public:
  Reducer(Engine& engine, const Call& call)
      : engine_(engine),
        kernel_(KernelFor(engine.instruction_set(), call.datatype, call.reduction)),
        element_(BytesOf(call.datatype)),
        check_(engine.check_finite() && IsFloat(call.datatype)),
        parts_(call.count * element_ < kWorthHelp ? 1 : engine.crew().parts()) {}

  std::uint64_t element_bytes() const { return element_; }
  // Runs work(part, parts) for every part at the same time, with the crew's help where the call is worth it.
  template <class Work>
  void Together(Work work) {
    if (parts_ == 1) {
      work(0, 1);
    } else {
      engine_.crew().Run([&](int part) { work(part, parts_); });
    }
  }

  // One stretch whose sources are those of the ranks from `first_rank` on. `first_element`: number of its first element
  // in the result. Long ones are shared with the crew.
  void Run(const Sources& sources, int source_count, int first_rank, const Outputs& outputs, int output_count,
           std::uint64_t count, std::uint64_t first_element) {
    if (parts_ == 1) {
      Note(Part(sources, source_count, outputs, output_count, {0, count}), first_rank, first_element);
      return;
    }
    std::array<std::optional<NonfiniteHit>, 2> hits;
    Together([&](int part, int parts) {
      hits.at(static_cast<std::size_t>(part)) =
          Part(sources, source_count, outputs, output_count, ShareOf(count, element_, part, parts));
    });
    Note(hits[0] ? hits[0] : hits[1], first_rank, first_element);
  }

  // One level of several. The last one (no `partial`) writes the result; returns where it was first not finite.
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
  // Any thread.
  std::optional<NonfiniteHit> Part(const Sources& sources, int source_count, const Outputs& outputs, int output_count,
                                   Slice slice) const {
    Sources shifted;
    for (int i = 0; i < source_count; ++i) shifted[i] = sources[i] + slice.begin * element_;
    Outputs shifted_outputs;
    for (int i = 0; i < output_count; ++i) shifted_outputs[i] = outputs[i] + slice.begin * element_;
    ReduceJob job;
    job.sources = shifted.data();
    job.source_count = source_count;
    job.outputs = shifted_outputs.data();
    job.output_count = output_count;
    job.count = slice.count;
    job.divisor = engine_.size();
    job.find_nonfinite = check_;
    std::optional<NonfiniteHit> hit = kernel_(job);
    if (hit) hit->index += slice.begin;
    return hit;
  }

  void Note(const std::optional<NonfiniteHit>& hit, int first_rank, std::uint64_t first_element) {
    if (!hit) return;
    engine_.NoteNonfinite(first_element + hit->index, hit->source < 0 ? -1 : first_rank + hit->source);
  }

  Engine& engine_;
  ReduceFunction kernel_;
  std::uint64_t element_;
  bool check_;
  int parts_;
};

// all_reduce and reduce: every member reduces its share of each piece, and those who want the result collect the
// shares.
class SharedReduction final : public Steps {
 public:
  SharedReduction(Engine& engine, const Call& call, Buffer input, Buffer output, bool wants_result)
      : engine_(engine),
        call_(call),
        reducer_(engine, call),
        in_(input),
        out_(output),
        wants_result_(wants_result),
        streaming_(Bytes(call.count) * static_cast<std::uint64_t>(engine.size()) > engine.cache_bytes()),
        pieces_(call.count, reducer_.element_bytes(), engine.layout().piece_bytes) {}

  std::uint64_t pieces() const { return pieces_.number(); }

  base::Result<void> StartIn(std::uint64_t piece, int slot) override {
    const Slice slice = pieces_.At(piece);
    std::byte* to = SlotOf(engine_.rank(), slot);
    if (in_.on_card()) return in_.StartIn(to, Bytes(slice.begin), Bytes(slice.count), piece);
    // Its own share is read where it is.
    const Slice share = Share(slice, engine_.rank());
    const std::uint64_t behind = share.begin + share.count;
    const std::uint64_t together = share.begin + slice.count - behind;
    reducer_.Together([&](int part, int parts) {
      const Slice own = ShareOf(together, reducer_.element_bytes(), part, parts);
      const std::uint64_t end = own.begin + own.count;
      const std::uint64_t middle = std::clamp(share.begin, own.begin, end);
      CopyIn(to, slice.begin, own.begin, middle - own.begin);
      CopyIn(to, slice.begin, middle + share.count, end - middle);
    });
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t piece) override { return in_.FinishIn(piece); }

  void Reduce(int /*level*/, std::uint64_t piece, int slot) override {
    const Slice slice = pieces_.At(piece);
    const Slice share = Share(slice, engine_.rank());
    Sources sources;
    for (int rank = 0; rank < engine_.size(); ++rank) {
      sources[rank] = rank == engine_.rank() && !in_.on_card() ? in_.host() + Bytes(slice.begin + share.begin)
                                                               : SlotOf(rank, slot) + Bytes(share.begin);
    }
    Outputs outputs;
    int output_count = 0;
    const bool straight = wants_result_ && !out_.on_card();
    if (straight) outputs[output_count++] = out_.host() + Bytes(slice.begin + share.begin);
    const bool others_want_it = call_.root < 0 ? engine_.size() > 1 : !wants_result_;
    if (others_want_it || !straight) outputs[output_count++] = ResultOf(engine_.rank(), slot);
    reducer_.Run(sources, engine_.size(), 0, outputs, output_count, share.count, slice.begin + share.begin);
  }

  base::Result<void> StartOut(std::uint64_t piece, int slot) override {
    if (!wants_result_) return {};
    const Slice slice = pieces_.At(piece);
    if (!out_.on_card()) {
      reducer_.Together([&](int part, int parts) {
        for (int rank = part; rank < engine_.size(); rank += parts) {
          if (rank != engine_.rank()) CopyOut(slice.begin, Share(slice, rank), ResultOf(rank, slot));
        }
      });
      return {};
    }
    for (int rank = 0; rank < engine_.size(); ++rank) {
      const Slice share = Share(slice, rank);
      base::Result<void> done =
          out_.StartOut(Bytes(slice.begin + share.begin), ResultOf(rank, slot), Bytes(share.count), piece);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t piece) override { return out_.FinishOut(piece); }

  void Measure() override {
    in_.Measure();
    out_.Measure();
  }
  std::optional<base::Duration> InTook(std::uint64_t piece) const override { return in_.InTook(piece); }
  std::optional<base::Duration> OutTook(std::uint64_t piece) const override { return out_.OutTook(piece); }

 private:
  std::uint64_t Bytes(std::uint64_t elements) const { return elements * reducer_.element_bytes(); }
  Slice Share(const Slice& slice, int rank) const {
    return ShareOf(slice.count, reducer_.element_bytes(), rank, engine_.size());
  }
  void CopyIn(std::byte* slot, std::uint64_t first, std::uint64_t begin, std::uint64_t count) const {
    if (count > 0) std::memcpy(slot + Bytes(begin), in_.host() + Bytes(first + begin), Bytes(count));
  }
  void CopyOut(std::uint64_t first, const Slice& share, const std::byte* result) {
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
  Mover in_;
  Mover out_;
  bool wants_result_;
  bool streaming_;
  Pieces pieces_;
};

// The same over several NUMA nodes: level n is the turn of node n, which goes on from what the node before left; one
// more level brings the result from the last node to the others.
class NodeReduction final : public Steps {
 public:
  NodeReduction(Engine& engine, const Call& call, Buffer input, Buffer output, bool wants_result)
      : engine_(engine),
        reducer_(engine, call),
        accumulator_(AccumulatorBytes(call.datatype)),
        datatype_(call.datatype),
        node_(engine.levels().NodeOf(engine.rank())),
        in_(input),
        out_(output),
        wants_result_(wants_result),
        pieces_(call.count, reducer_.element_bytes(), engine.layout().piece_bytes) {}

  std::uint64_t pieces() const { return pieces_.number(); }
  int reduce_levels() const { return Last() + 2; }

  base::Result<void> StartIn(std::uint64_t piece, int slot) override {
    const Slice slice = pieces_.At(piece);
    return in_.StartIn(Area(engine_.rank(), engine_.layout().Slot(slot)), Bytes(slice.begin), Bytes(slice.count),
                       piece);
  }
  base::Result<void> FinishIn(std::uint64_t piece) override { return in_.FinishIn(piece); }

  void Reduce(int level, std::uint64_t piece, int slot) override {
    const Slice slice = pieces_.At(piece);
    const Slice own = Share(slice, node_, engine_.rank());
    if (level == Last() + 2) {
      if (node_ == Last()) return;
      ForEachOverlap(slice, own, Last(), [&](int rank, std::uint64_t theirs, std::uint64_t begin, std::uint64_t count) {
        std::copy_n(Area(rank, engine_.layout().Result(slot)) + Bytes(theirs), Bytes(count),
                    Area(engine_.rank(), engine_.layout().Fetched(slot)) + Bytes(begin - own.begin));
      });
      return;
    }
    if (level != node_ + 1 || own.count == 0) return;
    if (node_ == 0) {
      RunPart(slice, own, slot, nullptr, own.begin, own.count);
      return;
    }
    ForEachOverlap(
        slice, own, node_ - 1, [&](int rank, std::uint64_t theirs, std::uint64_t begin, std::uint64_t count) {
          RunPart(slice, own, slot, Area(rank, engine_.layout().Partial(slot)) + theirs * accumulator_, begin, count);
        });
  }

  base::Result<void> StartOut(std::uint64_t piece, int slot) override {
    if (!wants_result_) return {};
    const Slice slice = pieces_.At(piece);
    const NodeLevels::Node& node = engine_.levels().nodes[static_cast<std::size_t>(node_)];
    for (int rank = node.first; rank < node.first + node.count; ++rank) {
      const Slice share = Share(slice, node_, rank);
      const std::uint64_t at = node_ == Last() ? engine_.layout().Result(slot) : engine_.layout().Fetched(slot);
      base::Result<void> done =
          out_.StartOut(Bytes(slice.begin + share.begin), Area(rank, at), Bytes(share.count), piece);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t piece) override { return out_.FinishOut(piece); }

 private:
  int Last() const { return engine_.levels().levels() - 1; }
  std::uint64_t Bytes(std::uint64_t elements) const { return elements * reducer_.element_bytes(); }
  std::byte* Area(int rank, std::uint64_t offset) const { return engine_.Segment(rank) + offset; }
  Slice Share(const Slice& slice, int node, int rank) const {
    const NodeLevels::Node& ranks = engine_.levels().nodes[static_cast<std::size_t>(node)];
    return ShareOf(slice.count, reducer_.element_bytes(), rank - ranks.first, ranks.count);
  }

  // Calls with each rank of `node` whose share overlaps `own`: where the overlap begins in that share, where in the
  // piece, and how long it is.
  template <class Visit>
  void ForEachOverlap(const Slice& slice, const Slice& own, int node, Visit visit) const {
    const NodeLevels::Node& ranks = engine_.levels().nodes[static_cast<std::size_t>(node)];
    for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
      const Slice share = Share(slice, node, rank);
      const std::uint64_t begin = std::max(own.begin, share.begin);
      const std::uint64_t end = std::min(own.begin + own.count, share.begin + share.count);
      if (begin < end) visit(rank, begin - share.begin, begin, end - begin);
    }
  }

  void RunPart(const Slice& slice, const Slice& own, int slot, const std::byte* prefix, std::uint64_t begin,
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
    // The inputs are all still in their slots.
    const std::uint64_t element = begin + *hit;
    int cause = -1;
    for (int rank = 0; rank < engine_.size() && cause < 0; ++rank) {
      if (!IsFinite(Area(rank, engine_.layout().Slot(slot)) + Bytes(element), datatype_)) cause = rank;
    }
    engine_.NoteNonfinite(slice.begin + element, cause);
  }

  Engine& engine_;
  Reducer reducer_;
  std::uint64_t accumulator_;
  Datatype datatype_;
  int node_;
  Mover in_;
  Mover out_;
  bool wants_result_;
  Pieces pieces_;
};

// A short call: everybody who wants the result reduces all of it. One gate in all.
class DirectReduction final : public Steps {
 public:
  DirectReduction(Engine& engine, const Call& call, Buffer input, Buffer output, bool wants_result)
      : engine_(engine), call_(call), reducer_(engine, call), in_(input), out_(output), wants_result_(wants_result) {}

  base::Result<void> StartIn(std::uint64_t piece, int slot) override {
    return in_.StartIn(engine_.Segment(engine_.rank()) + engine_.layout().Slot(slot), 0,
                       call_.count * reducer_.element_bytes(), piece);
  }
  base::Result<void> FinishIn(std::uint64_t piece) override { return in_.FinishIn(piece); }
  base::Result<void> StartOut(std::uint64_t piece, int slot) override {
    if (!wants_result_ || call_.count == 0) return {};
    Sources sources;
    for (int rank = 0; rank < engine_.size(); ++rank) {
      sources[rank] = engine_.Segment(rank) + engine_.layout().Slot(slot);
    }
    Outputs outputs;
    outputs[0] = out_.on_card() ? engine_.Segment(engine_.rank()) + engine_.layout().Result(slot) : out_.host();
    reducer_.Run(sources, engine_.size(), 0, outputs, 1, call_.count, 0);
    return out_.on_card() ? out_.StartOut(0, outputs[0], call_.count * reducer_.element_bytes(), piece)
                          : base::Result<void>();
  }
  base::Result<void> FinishOut(std::uint64_t piece) override { return out_.FinishOut(piece); }

 private:
  Engine& engine_;
  const Call& call_;
  Reducer reducer_;
  Mover in_;
  Mover out_;
  bool wants_result_;
};

// The data of all members lies in shared memory, and the result goes to the same place: every member reduces its share
// of the whole and writes it to all. Nothing is copied.
void ReduceInPlace(Engine& engine, const Call& call) {
  Reducer reducer(engine, call);
  const Slice share = ShareOf(call.count, reducer.element_bytes(), engine.rank(), engine.size());
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

// reduce_scatter: every slot has a part for each member, and each member reduces its own parts of all slots.
class ScatteredReduction final : public Steps {
 public:
  ScatteredReduction(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output)
      : engine_(engine),
        reducer_(engine, call),
        out_(output),
        part_bytes_(engine.layout().piece_bytes / static_cast<std::uint64_t>(engine.size()) / kSliceAlignment *
                    kSliceAlignment),
        pieces_(call.count, reducer_.element_bytes(), part_bytes_) {
    ins_.reserve(inputs.size());
    for (const Buffer& input : inputs) ins_.emplace_back(input);
  }

  std::uint64_t pieces() const { return pieces_.number(); }

  base::Result<void> StartIn(std::uint64_t piece, int slot) override {
    const Slice slice = pieces_.At(piece);
    for (int rank = 0; rank < engine_.size(); ++rank) {
      Mover& in = ins_[static_cast<std::size_t>(rank)];
      if (rank == engine_.rank() && !in.on_card()) continue;
      base::Result<void> done =
          in.StartIn(Part(engine_.rank(), slot, rank), Bytes(slice.begin), Bytes(slice.count), piece);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t piece) override {
    for (Mover& in : ins_) {
      if (base::Result<void> done = in.FinishIn(piece); !done) return done;
    }
    return {};
  }
  base::Result<void> StartOut(std::uint64_t piece, int slot) override {
    const Slice slice = pieces_.At(piece);
    const Mover& own = ins_[static_cast<std::size_t>(engine_.rank())];
    Sources sources;
    for (int rank = 0; rank < engine_.size(); ++rank) {
      sources[rank] =
          rank == engine_.rank() && !own.on_card() ? own.host() + Bytes(slice.begin) : Part(rank, slot, engine_.rank());
    }
    Outputs outputs;
    outputs[0] = out_.on_card() ? engine_.Segment(engine_.rank()) + engine_.layout().Result(slot)
                                : out_.host() + Bytes(slice.begin);
    reducer_.Run(sources, engine_.size(), 0, outputs, 1, slice.count, slice.begin);
    return out_.on_card() ? out_.StartOut(Bytes(slice.begin), outputs[0], Bytes(slice.count), piece)
                          : base::Result<void>();
  }
  base::Result<void> FinishOut(std::uint64_t piece) override { return out_.FinishOut(piece); }

 private:
  std::uint64_t Bytes(std::uint64_t elements) const { return elements * reducer_.element_bytes(); }
  std::byte* Part(int from, int slot, int to) const {
    return engine_.Segment(from) + engine_.layout().Slot(slot) + static_cast<std::uint64_t>(to) * part_bytes_;
  }

  Engine& engine_;
  Reducer reducer_;
  std::vector<Mover> ins_;
  Mover out_;
  std::uint64_t part_bytes_;
  Pieces pieces_;
};

bool IsShared(const Engine& engine, int rank) {
  const std::uint64_t place = engine.RecordOf(rank).place.load(std::memory_order_relaxed);
  return place != kPrivate && place != kOnCard;
}

int CountShared(const Engine& engine) {
  int shared = 0;
  for (int rank = 0; rank < engine.size(); ++rank) shared += IsShared(engine, rank) ? 1 : 0;
  return shared;
}

// What to do for one reduction: the steps, and how many levels they have.
struct Way {
  std::unique_ptr<Steps> steps;
  std::uint64_t pieces = 1;
  int levels = 0;
};

Way WayOf(Engine& engine, const Call& call, Buffer input, Buffer output, bool wants_result) {
  if (call.count * BytesOf(call.datatype) <= engine.direct_bytes()) {
    return {std::make_unique<DirectReduction>(engine, call, input, output, wants_result), 1, 0};
  }
  if (engine.levels().levels() > 1) {
    auto steps = std::make_unique<NodeReduction>(engine, call, input, output, wants_result);
    const std::uint64_t pieces = steps->pieces();
    const int levels = steps->reduce_levels();
    return {std::move(steps), pieces, levels};
  }
  auto steps = std::make_unique<SharedReduction>(engine, call, input, output, wants_result);
  const std::uint64_t pieces = steps->pieces();
  return {std::move(steps), pieces, 1};
}

}  // namespace

Status RunAllReduce(Engine& engine, const Call& call, Buffer input, Buffer output) {
  const Way way = WayOf(engine, call, input, output, true);
  if (way.levels == 0) return RunPieces(engine, *way.steps, way.pieces, 0);
  // Whether all have their data in shared memory shows behind the first gate. Who has it in private memory has brought
  // the first piece by then; the others do so only if it turns out to be needed.
  const bool shared = IsShared(engine, engine.rank());
  if (!shared) {
    if (Status status = BringFirstPiece(engine, *way.steps); !status.ok()) return status;
  }
  if (Status status = MeetAtFirstGate(engine); !status.ok()) return status;
  const int sharing = CountShared(engine);
  if (sharing == engine.size()) {
    ReduceInPlace(engine, call);
    return engine.Gate();
  }
  if (sharing > 0) {
    if (shared) {
      if (Status status = BringFirstPiece(engine, *way.steps); !status.ok()) return status;
    }
    if (Status status = engine.Gate(); !status.ok()) return status;
  }
  return GoOn(engine, *way.steps, way.pieces, way.levels);
}

Status RunReduce(Engine& engine, const Call& call, Buffer input, Buffer output) {
  const Way way = WayOf(engine, call, input, output, engine.rank() == call.root);
  return RunPieces(engine, *way.steps, way.pieces, way.levels);
}

Status RunReduceScatter(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output) {
  ScatteredReduction steps(engine, call, inputs, output);
  return RunPieces(engine, steps, steps.pieces(), 0);
}

}  // namespace fulldeck::collectives
