// What a config will do on a machine, before anything starts: ranks, batch, trainable rate, steps, and what it needs of
// memory, processors and disk against what there is. Pure: the machine is described by the caller.
//
// Memory is an estimate from the shapes of the model (docs/recipes.md says how), good to about a third. Only what is
// far out of reach is an error; what may be too much is a warning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "config/step_shape.h"

namespace fulldeck::config {

// Bytes. What is not known is absent.
struct MachineFacts {
  int ranks = 1;
  int cards = 0;           // that the ranks share; 0: they compute on the processors
  std::string card_kind;   // gcu, cuda …
  std::string card_model;  // for people
  bool simulated = false;  // the cards are simulated: they compute on the processors, in the host's memory
  std::optional<std::uint64_t> card_memory;  // of the smallest card
  int cores = 1;
  std::optional<std::uint64_t> host_memory;  // that is available now
  std::optional<std::uint64_t> disk_free;    // where the work folder is
  std::optional<std::uint64_t> training_samples;
};

struct MemoryEstimate {
  std::int64_t parameters = 0;  // backbone and heads
  std::int64_t trainable = 0;   // of them, not frozen
  std::uint64_t weights = 0, gradients = 0, optimizer = 0, ema = 0;
  std::uint64_t activations = 0;  // kept from forward for backward, of one micro-batch
  std::uint64_t rest = 0;         // communication buckets, work space, what the allocator wastes
  std::uint64_t total() const { return weights + gradients + optimizer + ema + activations + rest; }
  std::uint64_t checkpoint() const { return weights + optimizer + ema; }  // also rank 0's copy of it
};
// `fused_attention`: the card's torch never has the whole attention matrix in memory.
MemoryEstimate EstimateMemory(const Config& config, std::int64_t micro_batch, bool fused_attention);

struct Plan {
  StepShape shape;
  std::optional<std::int64_t> steps;  // absent: the samples are not known, and the config counts epochs
  std::optional<std::int64_t> steps_per_epoch;
  std::optional<double> epochs;
  MemoryEstimate memory;            // of one rank on its card
  std::uint64_t host_memory = 0;    // needed in all
  std::uint64_t disk = 0;           // needed at the most
  std::int64_t threads = 0;         // that load data, of all ranks
  std::vector<std::string> errors;  // it cannot work; each with a cure
  std::vector<std::string> warnings;

  // Several lines for a person.
  std::string ToText(const Config& config, const MachineFacts& machine) const;
};

// An error where the ranks cannot share the global batch.
base::Result<Plan> MakePlan(const Config& config, const MachineFacts& machine);

}  // namespace fulldeck::config
