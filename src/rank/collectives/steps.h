// The way of a call through its pieces. Every piece goes in (into a slot of each member that gives data), through zero
// or more levels of reducing, and out; between two stages all members meet at the gate. Pieces follow each other
// closely: while one goes out, the next is reduced and the one after it goes in, with one gate for all three.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "collectives/engine.h"

namespace fulldeck::collectives {

// What an operation does with one piece. `slot` says which slot the piece goes through. Copies of cards may still be
// under way when a Start returns and are over when its Finish does.
class Steps {
 public:
  virtual ~Steps() = default;
  virtual base::Result<void> StartIn(std::uint64_t piece, int slot) = 0;
  virtual base::Result<void> FinishIn(std::uint64_t piece) = 0;
  virtual void Reduce(int /*level*/, std::uint64_t /*piece*/, int /*slot*/) {}
  virtual base::Result<void> StartOut(std::uint64_t piece, int slot) = 0;
  virtual base::Result<void> FinishOut(std::uint64_t piece) = 0;

  // For a traced call with data on cards: see Staging.
  virtual void Measure() {}
  virtual std::optional<base::Duration> InTook(std::uint64_t /*piece*/) const { return std::nullopt; }
  virtual std::optional<base::Duration> OutTook(std::uint64_t /*piece*/) const { return std::nullopt; }
};

// Between Begin and End of a call: brings the first piece, meets the others at the call's first gate, and goes on.
// Gates: pieces + levels.
Status RunPieces(Engine& engine, Steps& steps, std::uint64_t pieces, int levels);

// The same in its parts, for a call that decides behind its first gate. Every member must bring its first piece, and
// pass a gate, before any goes on.
Status BringFirstPiece(Engine& engine, Steps& steps);
Status MeetAtFirstGate(Engine& engine);
Status GoOn(Engine& engine, Steps& steps, std::uint64_t pieces, int levels);

}  // namespace fulldeck::collectives
