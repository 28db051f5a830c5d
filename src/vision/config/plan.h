// What a config will do on a machine, computed before anything starts: ranks, batch, learning rate, steps, and the
// memory, CPU cores and disk space it needs, compared with what is available. Pure: the caller describes the machine.
//
// Memory is an estimate from the shapes of the model (docs/recipes.md explains how), accurate to about a third. Only a
// need far beyond the available memory is an error; a possible shortage is a warning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "config/step_shape.h"

namespace fulldeck::config {

// Sizes in bytes. Unknown values are absent.
struct MachineFacts {
  int ranks = 1;
  int cards = 0;                             // shared by the ranks; 0: the ranks compute on the CPU
  std::string card_kind;                     // gcu, cuda …
  std::string card_model;                    // only for output
  bool simulated = false;                    // simulated cards compute on the CPU, in host memory
  std::optional<std::uint64_t> card_memory;  // of the card with the least memory
  int cores = 1;
  std::optional<std::uint64_t> host_memory;  // currently available
  std::optional<std::uint64_t> disk_free;    // on the file system of the job folder
  std::optional<std::uint64_t> training_samples;
};

struct MemoryEstimate {
  std::int64_t parameters = 0;  // backbone and heads
  std::int64_t trainable = 0;   // those that are not frozen
  std::uint64_t weights = 0, gradients = 0, optimizer = 0, ema = 0;
  std::uint64_t activations = 0;  // kept from forward for backward, of one micro-batch
  std::uint64_t rest = 0;         // communication buckets, workspace, allocator fragmentation
  std::uint64_t total() const { return weights + gradients + optimizer + ema + activations + rest; }
  std::uint64_t checkpoint() const { return weights + optimizer + ema; }  // also the size of rank 0's copy of it
};
// `fused_attention`: torch on this card never holds the whole attention matrix in memory.
MemoryEstimate EstimateMemory(const Config& config, std::int64_t micro_batch, bool fused_attention);

struct Plan {
  StepShape shape;
  std::optional<std::int64_t> steps;  // absent: the config counts epochs, and the number of samples is unknown
  std::optional<std::int64_t> steps_per_epoch;
  std::optional<double> epochs;
  MemoryEstimate memory;            // of one rank on its card
  std::uint64_t host_memory = 0;    // total of all ranks
  std::uint64_t disk = 0;           // maximum
  std::int64_t threads = 0;         // data loading threads of all ranks
  std::vector<std::string> errors;  // the job cannot run; each with a fix
  std::vector<std::string> warnings;

  // Several lines of human-readable text.
  std::string ToText(const Config& config, const MachineFacts& machine) const;
};

// An error if the global batch cannot be divided among the ranks.
base::Result<Plan> MakePlan(const Config& config, const MachineFacts& machine);

}  // namespace fulldeck::config
