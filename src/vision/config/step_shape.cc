#include "config/step_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace fulldeck::config {

base::Result<StepShape> StepShapeFor(const Config& config, std::int64_t ranks) {
  FULLDECK_CHECK(ranks >= 1);
  const Train& train = config.train;
  StepShape shape;
  shape.ranks = ranks;
  shape.lr = train.lr;
  if (train.global_batch > 0) {
    if (train.global_batch % ranks != 0) {
      std::vector<std::string> possible;
      for (std::int64_t fewer = ranks - 1; fewer >= 1 && possible.size() < 3; --fewer) {
        if (train.global_batch % fewer == 0) possible.push_back(std::to_string(fewer));
      }
      return base::Error{fmt::format(
          "train.global_batch = {} cannot be shared evenly by {} ranks; use --devices {}, or a global batch of {}",
          train.global_batch, ranks, base::Join(possible, " or "), (train.global_batch / ranks + 1) * ranks)};
    }
    shape.global_batch = train.global_batch;
    shape.rank_batch = train.global_batch / ranks;
    shape.micro_batch = std::min(train.batch, shape.rank_batch);
    shape.accumulation = (shape.rank_batch + shape.micro_batch - 1) / shape.micro_batch;
  } else {
    shape.micro_batch = train.batch;
    shape.accumulation = train.accumulation;
    shape.rank_batch = train.batch * train.accumulation;
    shape.global_batch = shape.rank_batch * ranks;
  }
  if (train.lr_base_batch > 0) {
    shape.lr = train.lr * static_cast<double>(shape.global_batch) / static_cast<double>(train.lr_base_batch);
  }
  return shape;
}

std::int64_t StepsPerEpoch(std::uint64_t samples, std::int64_t global_batch) {
  FULLDECK_CHECK(global_batch >= 1);
  const std::uint64_t steps = samples / static_cast<std::uint64_t>(global_batch);
  return static_cast<std::int64_t>(std::min<std::uint64_t>(steps, std::numeric_limits<std::int64_t>::max()));
}

std::int64_t TotalSteps(const Config& config, std::uint64_t samples, std::int64_t global_batch) {
  if (config.steps > 0) return config.steps;
  const std::int64_t per_epoch = StepsPerEpoch(samples, global_batch);
  if (config.epochs > 0 && per_epoch > std::numeric_limits<std::int64_t>::max() / config.epochs) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return per_epoch * config.epochs;
}

}  // namespace fulldeck::config
