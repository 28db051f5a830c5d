// The shape of one optimizer step for a number of ranks: the samples per rank, the learning rate, and the number of
// steps. Used by both the plan and the training loop. Pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "config/config.h"

namespace fulldeck::config {

struct StepShape {
  std::int64_t ranks = 1;
  std::int64_t global_batch = 0;  // samples per step over all ranks
  std::int64_t rank_batch = 0;    // of one rank
  // The largest number of samples that a rank computes at once; the last micro-batch of a step may be smaller.
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 1;  // micro-batches per step
  double lr = 0;                  // of the heads, scaled from lr_base_batch

  bool operator==(const StepShape&) const = default;
};

// An error if the global batch cannot be divided evenly; it lists the rank counts that work.
base::Result<StepShape> StepShapeFor(const Config& config, std::int64_t ranks);

// Full batches only: each epoch drops its remainder (different samples in each epoch). 0 if the data does not fill one
// batch.
std::int64_t StepsPerEpoch(std::uint64_t samples, std::int64_t global_batch);
// config.steps, or the steps of config.epochs.
std::int64_t TotalSteps(const Config& config, std::uint64_t samples, std::int64_t global_batch);

}  // namespace fulldeck::config
