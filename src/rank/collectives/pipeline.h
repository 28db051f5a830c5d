// The way of a call through its chunks. Every chunk goes in (into a slot of each member that gives data), through zero
// or more levels of reducing, and out; between two stages all members meet at the barrier. Chunks follow each other
// closely: while one goes out, the next is reduced and the one after it goes in, with one barrier for all three.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "collectives/engine.h"

namespace fulldeck::collectives {

// What an operation does with one chunk. `slot` says which slot the chunk goes through. Copies of cards may still be
// under way when a Start returns and are over when its Finish does.
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

// Between Begin and End of a call: brings the first chunk, meets the others at the call's first barrier, and goes on.
// Gates: chunks + levels.
Status RunPipeline(Engine& engine, PipelineStages& stages, std::uint64_t chunks, int levels);

// The same in its parts, for a call that decides behind its first barrier. Every member must bring its first chunk, and
// pass a barrier, before any goes on.
Status LoadFirstChunk(Engine& engine, PipelineStages& stages);
Status FirstBarrier(Engine& engine);
Status ContinuePipeline(Engine& engine, PipelineStages& stages, std::uint64_t chunks, int levels);

}  // namespace fulldeck::collectives
