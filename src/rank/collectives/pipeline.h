// Moves a call through its chunks. Every chunk is copied in (into a slot of each member that contributes data), goes
// through zero or more levels of reduction, and is copied out; between two stages all members pass the barrier. Chunks
// are pipelined: while one is copied out, the next is reduced and the one after it is copied in, with one barrier for
// all three.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "collectives/engine.h"

namespace fulldeck::collectives {

// The stages of an operation for one chunk. `slot` is the slot that the chunk goes through. Copies of cards may still
// be in progress when a Start returns; they are complete when its Finish returns.
class PipelineStages {
 public:
  virtual ~PipelineStages() = default;
  virtual base::Result<void> StartIn(std::uint64_t chunk, int slot) = 0;
  virtual base::Result<void> FinishIn(std::uint64_t chunk) = 0;
  virtual void Reduce(int /*level*/, std::uint64_t /*chunk*/, int /*slot*/) {}
  virtual base::Result<void> StartOut(std::uint64_t chunk, int slot) = 0;
  virtual base::Result<void> FinishOut(std::uint64_t chunk) = 0;

  // For a traced call with data on cards: see Staging.
  virtual void Measure() {}
  virtual std::optional<base::Duration> InTook(std::uint64_t /*chunk*/) const { return std::nullopt; }
  virtual std::optional<base::Duration> OutTook(std::uint64_t /*chunk*/) const { return std::nullopt; }
};

// Runs between Begin and End of a call: loads the first chunk, passes the call's first barrier, and continues. Number
// of barriers: chunks + levels.
Status RunPipeline(Engine& engine, PipelineStages& stages, std::uint64_t chunks, int levels);

// The same in steps, for a call that decides after its first barrier. Every member must load its first chunk and pass a
// barrier before any member continues.
Status LoadFirstChunk(Engine& engine, PipelineStages& stages);
Status FirstBarrier(Engine& engine);
Status ContinuePipeline(Engine& engine, PipelineStages& stages, std::uint64_t chunks, int levels);

}  // namespace fulldeck::collectives
