// What one optimizer step is at a number of ranks: who computes how many samples, at which learning rate, and how many
// steps there are. The plan and the training loop follow the same functions. Pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "config/config.h"

namespace fulldeck::config {

struct StepShape {
  std::int64_t ranks = 1;
  std::int64_t global_batch = 0;  // samples of a step over all ranks
  std::int64_t rank_batch = 0;    // of one rank
  std::int64_t micro_batch = 0;   // that a rank computes at once, at most; the last part of a step may be smaller
  std::int64_t accumulation = 1;  // parts
  double lr = 0;                  // of the heads, scaled from lr_base_batch

  bool operator==(const StepShape&) const = default;
};

// An error when the global batch cannot be shared evenly, with the numbers of ranks that could.
base::Result<StepShape> StepShapeFor(const Config& config, std::int64_t ranks);

// Whole batches: the rest of an epoch is left out, others in the next epoch. 0 when the data does not fill one.
std::int64_t StepsPerEpoch(std::uint64_t samples, std::int64_t global_batch);
// config.steps, or those of its epochs.
std::int64_t TotalSteps(const Config& config, std::uint64_t samples, std::int64_t global_batch);

}  // namespace fulldeck::config
