// The operations that only move data: barrier, broadcast, all_gather, gather, scatter, all_to_all.
#include <cstring>
#include <optional>
#include <vector>

#include "collectives/calls.h"
#include "collectives/memory/mover.h"
#include "collectives/memory/slices.h"
#include "collectives/steps.h"

namespace fulldeck::collectives {
namespace {

std::byte* SlotOf(const Engine& engine, int rank, int slot) {
  return engine.Segment(rank) + engine.layout().Slot(slot);
}

// A part of a slot for each member, on lines of its own.
std::uint64_t PartBytes(const Engine& engine) {
  return engine.layout().piece_bytes / static_cast<std::uint64_t>(engine.size()) / kSliceAlignment * kSliceAlignment;
}

std::vector<Mover> MoversOf(std::span<const Buffer> buffers) {
  std::vector<Mover> movers;
  movers.reserve(buffers.size());
  for (const Buffer& buffer : buffers) movers.emplace_back(buffer);
  return movers;
}

base::Result<void> FinishAll(std::vector<Mover>& movers, std::uint64_t piece,
                             base::Result<void> (Mover::*finish)(std::uint64_t)) {
  for (Mover& mover : movers) {
    if (base::Result<void> done = (mover.*finish)(piece); !done) return done;
  }
  return {};
}

// What a member gives to itself: straight from memory to memory, or through its slot where a card is in it.
bool Straight(const Mover& from, const Mover& to) {
  return !from.on_card() && !to.on_card();
}

void CopyStraight(const Mover& from, Mover& to, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > 0 && from.host() != to.host()) std::memmove(to.host() + offset, from.host() + offset, bytes);
}

// broadcast, all_gather and gather: whole pieces go in on the members that give, and out on those that take.
class WholePieces final : public Steps {
 public:
  WholePieces(Engine& engine, const Call& call, std::optional<Buffer> gives, std::span<const Buffer> takes,
              int first_taken)
      : engine_(engine),
        element_(BytesOf(call.datatype)),
        takes_(MoversOf(takes)),
        first_taken_(first_taken),
        pieces_(call.count, element_, engine.layout().piece_bytes) {
    if (gives) in_.emplace(*gives);
  }

  std::uint64_t pieces() const { return pieces_.number(); }

  base::Result<void> StartIn(std::uint64_t piece, int slot) override {
    if (!in_) return {};
    const Slice slice = pieces_.At(piece);
    return in_->StartIn(SlotOf(engine_, engine_.rank(), slot), slice.begin * element_, slice.count * element_, piece);
  }
  base::Result<void> FinishIn(std::uint64_t piece) override {
    return in_ ? in_->FinishIn(piece) : base::Result<void>();
  }
  base::Result<void> StartOut(std::uint64_t piece, int slot) override {
    const Slice slice = pieces_.At(piece);
    for (std::size_t i = 0; i < takes_.size(); ++i) {
      const int rank = first_taken_ + static_cast<int>(i);
      Mover& out = takes_[i];
      if (rank == engine_.rank() && Straight(*in_, out)) {
        CopyStraight(*in_, out, slice.begin * element_, slice.count * element_);
        continue;
      }
      base::Result<void> done =
          out.StartOut(slice.begin * element_, SlotOf(engine_, rank, slot), slice.count * element_, piece);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t piece) override { return FinishAll(takes_, piece, &Mover::FinishOut); }

 private:
  Engine& engine_;
  std::uint64_t element_;
  std::optional<Mover> in_;
  std::vector<Mover> takes_;  // from rank first_taken_ on
  int first_taken_;
  Pieces pieces_;
};

// scatter and all_to_all: a slot holds a part for each member. Parts may differ in length, and a member may give or
// take none.
class Parts final : public Steps {
 public:
  Parts(Engine& engine, std::uint64_t element, std::span<const Part> gives, std::span<const Part> takes,
        std::uint64_t longest)
      : engine_(engine), element_(element), part_bytes_(PartBytes(engine)), pieces_(longest, element, part_bytes_) {
    for (const Part& part : gives) {
      ins_.emplace_back(part.buffer);
      in_counts_.push_back(part.count);
    }
    for (const Part& part : takes) {
      outs_.emplace_back(part.buffer);
      out_counts_.push_back(part.count);
    }
  }

  std::uint64_t pieces() const { return pieces_.number(); }

  base::Result<void> StartIn(std::uint64_t piece, int slot) override {
    for (std::size_t rank = 0; rank < ins_.size(); ++rank) {
      if (IsStraight(rank)) continue;
      const Slice slice = Cut(piece, in_counts_[rank]);
      base::Result<void> done = ins_[rank].StartIn(SlotOf(engine_, engine_.rank(), slot) + rank * part_bytes_,
                                                   slice.begin * element_, slice.count * element_, piece);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t piece) override { return FinishAll(ins_, piece, &Mover::FinishIn); }
  base::Result<void> StartOut(std::uint64_t piece, int slot) override {
    for (std::size_t rank = 0; rank < outs_.size(); ++rank) {
      const Slice slice = Cut(piece, out_counts_[rank]);
      if (IsStraight(rank)) {
        CopyStraight(ins_[rank], outs_[rank], slice.begin * element_, slice.count * element_);
        continue;
      }
      const std::byte* from =
          SlotOf(engine_, static_cast<int>(rank), slot) + static_cast<std::uint64_t>(engine_.rank()) * part_bytes_;
      base::Result<void> done = outs_[rank].StartOut(slice.begin * element_, from, slice.count * element_, piece);
      if (!done) return done;
    }
    return {};
  }
  base::Result<void> FinishOut(std::uint64_t piece) override { return FinishAll(outs_, piece, &Mover::FinishOut); }

 private:
  Slice Cut(std::uint64_t piece, std::uint64_t count) const {
    const Slice slice = pieces_.At(piece);
    const std::uint64_t begin = std::min(count, slice.begin);
    return {begin, std::min(slice.count, count - begin)};
  }
  bool IsStraight(std::size_t rank) const {
    return rank == static_cast<std::size_t>(engine_.rank()) && rank < ins_.size() && rank < outs_.size() &&
           Straight(ins_[rank], outs_[rank]);
  }

  Engine& engine_;
  std::uint64_t element_;
  std::uint64_t part_bytes_;
  Pieces pieces_;
  std::vector<Mover> ins_;  // by the rank that it goes to
  std::vector<std::uint64_t> in_counts_;
  std::vector<Mover> outs_;  // by the rank that it comes from
  std::vector<std::uint64_t> out_counts_;
};

// The first piece of an all_to_all: how much each member sends to and expects of each.
class CountTable final : public Steps {
 public:
  CountTable(Engine& engine, std::span<const Part> inputs, std::span<const Part> outputs)
      : engine_(engine), inputs_(inputs), outputs_(outputs) {}

  base::Result<void> StartIn(std::uint64_t /*piece*/, int slot) override {
    slot_ = slot;
    std::byte* to = SlotOf(engine_, engine_.rank(), slot);
    for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
      std::memcpy(to + rank * sizeof(std::uint64_t), &inputs_[rank].count, sizeof(std::uint64_t));
      std::memcpy(to + (inputs_.size() + rank) * sizeof(std::uint64_t), &outputs_[rank].count, sizeof(std::uint64_t));
    }
    return {};
  }
  base::Result<void> FinishIn(std::uint64_t /*piece*/) override { return {}; }
  base::Result<void> StartOut(std::uint64_t /*piece*/, int /*slot*/) override { return {}; }
  base::Result<void> FinishOut(std::uint64_t /*piece*/) override { return {}; }

  std::uint64_t Sends(int from, int to) const { return Entry(from, to); }
  std::uint64_t Expects(int to, int from) const { return Entry(to, engine_.size() + from); }

 private:
  std::uint64_t Entry(int rank, int index) const {
    std::uint64_t value = 0;
    std::memcpy(&value, SlotOf(engine_, rank, slot_) + static_cast<std::size_t>(index) * sizeof value, sizeof value);
    return value;
  }

  Engine& engine_;
  std::span<const Part> inputs_;
  std::span<const Part> outputs_;
  int slot_ = 0;
};

}  // namespace

Status RunBarrier(Engine& engine) {
  return MeetAtFirstGate(engine);
}

Status RunBroadcast(Engine& engine, const Call& call, Buffer buffer) {
  const bool gives = engine.rank() == call.root;
  WholePieces steps(engine, call, gives ? std::optional<Buffer>(buffer) : std::nullopt,
                    gives ? std::span<const Buffer>() : std::span<const Buffer>(&buffer, 1), call.root);
  return RunPieces(engine, steps, steps.pieces(), 0);
}

Status RunAllGather(Engine& engine, const Call& call, Buffer input, std::span<const Buffer> outputs) {
  WholePieces steps(engine, call, input, outputs, 0);
  return RunPieces(engine, steps, steps.pieces(), 0);
}

Status RunGather(Engine& engine, const Call& call, Buffer input, std::span<const Buffer> outputs) {
  WholePieces steps(engine, call, input, outputs, 0);
  return RunPieces(engine, steps, steps.pieces(), 0);
}

Status RunScatter(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output) {
  std::vector<Part> gives;
  for (const Buffer& input : inputs) gives.push_back({input, call.count});
  std::vector<Part> takes(static_cast<std::size_t>(engine.size()));
  takes[static_cast<std::size_t>(call.root)] = {output, call.count};
  Parts steps(engine, BytesOf(call.datatype), gives, takes, call.count);
  return RunPieces(engine, steps, steps.pieces(), 0);
}

Status RunAllToAll(Engine& engine, const Call& call, std::span<const Part> inputs, std::span<const Part> outputs) {
  CountTable table(engine, inputs, outputs);
  if (Status status = RunPieces(engine, table, 1, 0); !status.ok()) return status;
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
  Parts steps(engine, BytesOf(call.datatype), inputs, outputs, longest);
  return RunPieces(engine, steps, steps.pieces(), 0);
}

}  // namespace fulldeck::collectives
