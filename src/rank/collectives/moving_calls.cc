// The operations that only move data: barrier, broadcast, all_gather, gather, scatter, all_to_all.
#include <cstring>
#include <optional>
#include <vector>

#include "collectives/calls.h"
#include "collectives/memory/chunks.h"
#include "collectives/memory/staged_copy.h"
#include "collectives/pipeline.h"

namespace fulldeck::collectives {
namespace {

std::byte* SlotOf(const Engine& engine, int rank, int slot) {
  return engine.Segment(rank) + engine.layout().Slot(slot);
}

// One range of a slot per member, each on its own cache lines.
std::uint64_t RankChunkBytes(const Engine& engine) {
  return engine.layout().chunk_bytes / static_cast<std::uint64_t>(engine.size()) / kRangeAlignment * kRangeAlignment;
}

std::vector<StagedCopy> StagedCopiesOf(std::span<const Buffer> buffers) {
  std::vector<StagedCopy> copies;
  copies.reserve(buffers.size());
  for (const Buffer& buffer : buffers) copies.emplace_back(buffer);
  return copies;
}

base::Result<void> FinishAll(std::vector<StagedCopy>& copies, std::uint64_t chunk,
                             base::Result<void> (StagedCopy::*finish)(std::uint64_t)) {
  for (StagedCopy& copy : copies) {
    if (base::Result<void> done = (copy.*finish)(chunk); !done) return done;
  }
  return {};
}

// A member's own data: copied directly from memory to memory, or through its slot if a card is involved.
bool BothOnHost(const StagedCopy& from, const StagedCopy& to) {
  return !from.on_card() && !to.on_card();
}

void CopyDirectly(const StagedCopy& from, StagedCopy& to, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > 0 && from.host() != to.host()) std::memmove(to.host() + offset, from.host() + offset, bytes);
}

// broadcast, all_gather and gather: whole chunks are copied in on the members that send, and out on those that receive.
class WholeChunks final : public PipelineStages {
 public:
  WholeChunks(Engine& engine, const Call& call, std::optional<Buffer> gives, std::span<const Buffer> takes,
              int first_taken)
      : engine_(engine),
        element_(BytesOf(call.datatype)),
        takes_(StagedCopiesOf(takes)),
        first_taken_(first_taken),
        chunks_(call.count, element_, engine.layout().chunk_bytes) {
    if (gives) in_.emplace(*gives);
  }

  std::uint64_t chunks() const { return chunks_.number(); }

  base::Result<void> StartIn(std::uint64_t chunk, int slot) override {
    if (!in_) return {};
    const Range range = chunks_.At(chunk);
    return in_->StartIn(SlotOf(engine_, engine_.rank(), slot), range.begin * element_, range.count * element_, chunk);
  }
  base::Result<void> FinishIn(std::uint64_t chunk) override {
    return in_ ? in_->FinishIn(chunk) : base::Result<void>();
  }
  base::Result<void> StartOut(std::uint64_t chunk, int slot) override {
    const Range range = chunks_.At(chunk);
    for (std::size_t i = 0; i < takes_.size(); ++i) {
      const int rank = first_taken_ + static_cast<int>(i);
      StagedCopy& out = takes_[i];
      if (rank == engine_.rank() && BothOnHost(*in_, out)) {
        CopyDirectly(*in_, out, range.begin * element_, range.count * element_);
        continue;
      }
      base::Result<void> done =
          out.StartOut(range.begin * element_, SlotOf(engine_, rank, slot), range.count * element_, chunk);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t chunk) override {
    return FinishAll(takes_, chunk, &StagedCopy::FinishOut);
  }

 private:
  Engine& engine_;
  std::uint64_t element_;
  std::optional<StagedCopy> in_;
  std::vector<StagedCopy> takes_;  // starting with rank first_taken_
  int first_taken_;
  Chunks chunks_;
};

// scatter and all_to_all: a slot has a range per member. Their lengths may differ, and a member may send or receive
// nothing.
class PerRankChunks final : public PipelineStages {
 public:
  PerRankChunks(Engine& engine, std::uint64_t element, std::span<const RankBuffer> gives,
                std::span<const RankBuffer> takes, std::uint64_t longest)
      : engine_(engine),
        element_(element),
        rank_chunk_bytes_(RankChunkBytes(engine)),
        chunks_(longest, element, rank_chunk_bytes_) {
    for (const RankBuffer& part : gives) {
      ins_.emplace_back(part.buffer);
      in_counts_.push_back(part.count);
    }
    for (const RankBuffer& part : takes) {
      outs_.emplace_back(part.buffer);
      out_counts_.push_back(part.count);
    }
  }

  std::uint64_t chunks() const { return chunks_.number(); }

  base::Result<void> StartIn(std::uint64_t chunk, int slot) override {
    for (std::size_t rank = 0; rank < ins_.size(); ++rank) {
      if (IsDirect(rank)) continue;
      const Range range = Cut(chunk, in_counts_[rank]);
      base::Result<void> done = ins_[rank].StartIn(SlotOf(engine_, engine_.rank(), slot) + rank * rank_chunk_bytes_,
                                                   range.begin * element_, range.count * element_, chunk);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t chunk) override { return FinishAll(ins_, chunk, &StagedCopy::FinishIn); }
  base::Result<void> StartOut(std::uint64_t chunk, int slot) override {
    for (std::size_t rank = 0; rank < outs_.size(); ++rank) {
      const Range range = Cut(chunk, out_counts_[rank]);
      if (IsDirect(rank)) {
        CopyDirectly(ins_[rank], outs_[rank], range.begin * element_, range.count * element_);
        continue;
      }
      const std::byte* from = SlotOf(engine_, static_cast<int>(rank), slot) +
                              static_cast<std::uint64_t>(engine_.rank()) * rank_chunk_bytes_;
      base::Result<void> done = outs_[rank].StartOut(range.begin * element_, from, range.count * element_, chunk);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t chunk) override { return FinishAll(outs_, chunk, &StagedCopy::FinishOut); }

 private:
  Range Cut(std::uint64_t chunk, std::uint64_t count) const {
    const Range range = chunks_.At(chunk);
    const std::uint64_t begin = std::min(count, range.begin);
    return {begin, std::min(range.count, count - begin)};
  }
  bool IsDirect(std::size_t rank) const {
    return rank == static_cast<std::size_t>(engine_.rank()) && rank < ins_.size() && rank < outs_.size() &&
           BothOnHost(ins_[rank], outs_[rank]);
  }

  Engine& engine_;
  std::uint64_t element_;
  std::uint64_t rank_chunk_bytes_;
  Chunks chunks_;
  std::vector<StagedCopy> ins_;  // by destination rank
  std::vector<std::uint64_t> in_counts_;
  std::vector<StagedCopy> outs_;  // by source rank
  std::vector<std::uint64_t> out_counts_;
};

// The first chunk of an all_to_all: how much each member sends to and expects from each.
class CountTable final : public PipelineStages {
 public:
  CountTable(Engine& engine, std::span<const RankBuffer> inputs, std::span<const RankBuffer> outputs)
      : engine_(engine), inputs_(inputs), outputs_(outputs) {}

  base::Result<void> StartIn(std::uint64_t /*chunk*/, int slot) override {
    slot_ = slot;
    std::byte* to = SlotOf(engine_, engine_.rank(), slot);
    for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
      std::memcpy(to + rank * sizeof(std::uint64_t), &inputs_[rank].count, sizeof(std::uint64_t));
      std::memcpy(to + (inputs_.size() + rank) * sizeof(std::uint64_t), &outputs_[rank].count, sizeof(std::uint64_t));
    }
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t /*chunk*/) override { return {}; }
  base::Result<void> StartOut(std::uint64_t /*chunk*/, int /*slot*/) override { return {}; }
  base::Result<void> FinishOut(std::uint64_t /*chunk*/) override { return {}; }

  std::uint64_t Sends(int from, int to) const { return Entry(from, to); }
  std::uint64_t Expects(int to, int from) const { return Entry(to, engine_.size() + from); }

 private:
  std::uint64_t Entry(int rank, int index) const {
    std::uint64_t value = 0;
    std::memcpy(&value, SlotOf(engine_, rank, slot_) + static_cast<std::size_t>(index) * sizeof value, sizeof value);
    return value;
  }

  Engine& engine_;
  std::span<const RankBuffer> inputs_;
  std::span<const RankBuffer> outputs_;
  int slot_ = 0;
};

}  // namespace

Status RunBarrier(Engine& engine) {
  return FirstBarrier(engine);
}

Status RunBroadcast(Engine& engine, const Call& call, Buffer buffer) {
  const bool gives = engine.rank() == call.root;
  WholeChunks stages(engine, call, gives ? std::optional<Buffer>(buffer) : std::nullopt,
                     gives ? std::span<const Buffer>() : std::span<const Buffer>(&buffer, 1), call.root);
  return RunPipeline(engine, stages, stages.chunks(), 0);
}

Status RunAllGather(Engine& engine, const Call& call, Buffer input, std::span<const Buffer> outputs) {
  WholeChunks stages(engine, call, input, outputs, 0);
  return RunPipeline(engine, stages, stages.chunks(), 0);
}

Status RunGather(Engine& engine, const Call& call, Buffer input, std::span<const Buffer> outputs) {
  WholeChunks stages(engine, call, input, outputs, 0);
  return RunPipeline(engine, stages, stages.chunks(), 0);
}

Status RunScatter(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output) {
  std::vector<RankBuffer> gives;
  for (const Buffer& input : inputs) gives.push_back({input, call.count});
  std::vector<RankBuffer> takes(static_cast<std::size_t>(engine.size()));
  takes[static_cast<std::size_t>(call.root)] = {output, call.count};
  PerRankChunks stages(engine, BytesOf(call.datatype), gives, takes, call.count);
  return RunPipeline(engine, stages, stages.chunks(), 0);
}

Status RunAllToAll(Engine& engine, const Call& call, std::span<const RankBuffer> inputs,
                   std::span<const RankBuffer> outputs) {
  CountTable table(engine, inputs, outputs);
  if (Status status = RunPipeline(engine, table, 1, 0); !status.ok()) return status;
  std::uint64_t longest = 0;
  std::string wrong;
  for (int from = 0; from < engine.size(); ++from) {
    for (int to = 0; to < engine.size(); ++to) {
      const std::uint64_t sent = table.Sends(from, to);
      longest = std::max(longest, sent);
      if (sent == table.Expects(to, from) || !wrong.empty()) continue;
      wrong = "rank " + std::to_string(from) + " sends " + std::to_string(sent) + " elements to rank " +
              std::to_string(to) + ", which expects " + std::to_string(table.Expects(to, from));
    }
  }
  if (!wrong.empty()) {
    return engine.Fail(FULLDECK_ERROR_MISMATCH, "group \"" + engine.name() + "\": call " +
                                                    std::to_string(engine.sequence()) + ", all_to_all: " + wrong);
  }
  PerRankChunks stages(engine, BytesOf(call.datatype), inputs, outputs, longest);
  return RunPipeline(engine, stages, stages.chunks(), 0);
}

}  // namespace fulldeck::collectives
