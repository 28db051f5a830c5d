// The config of a vision job: every key that `fulldeck train CONFIG.toml` accepts, with its default. Plain values,
// already checked by the code that read them (read.h). The launcher plans with them and the ranks train with them. Not
// the parser: see keys.h and read.h.
//
// The names are those of the TOML file: `train.lr` is Config::train.lr. docs/recipes.md is the reference.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model_spec/options.h"

namespace fulldeck::config {

enum class Decay { kPoly, kCosine, kConstant };
enum class Precision { kFloat32, kBfloat16, kFloat16 };
enum class OnOutOfMemory { kFail, kHalve };

// [train]
struct Train {
  // Samples per card and step; with accumulation: per card and micro-batch.
  std::int64_t batch = 2;
  // Samples per step over all cards; 0: batch × accumulation × cards.
  std::int64_t global_batch = 0;
  std::int64_t accumulation = 1;
  double lr = 1e-4;
  // The global batch that lr is given for; lr is scaled linearly from it. 0: no scaling.
  std::int64_t lr_base_batch = 0;
  std::array<double, 2> betas = {0.9, 0.999};
  double weight_decay = 0.05;
  double backbone_lr = 0.1;  // factor
  bool decay_norm_and_bias = false;
  double clip_norm = 0;  // 0: none
  // Steps; −1: a tenth of all steps, at most 1000 (WarmupSteps).
  std::int64_t warmup = -1;
  double warmup_lr = 1e-6;  // learning rate at the start of the warm-up
  double min_lr = 1e-6;
  Decay decay = Decay::kPoly;
  double power = 1;  // of poly
  double label_smoothing = 0;
  Precision precision = Precision::kFloat32;
  OnOutOfMemory oom = OnOutOfMemory::kFail;
  bool deterministic = false;  // torch's deterministic algorithms
  // Interval in steps at which the parameters of all ranks are compared.
  std::int64_t hash_every = 50;

  bool operator==(const Train&) const = default;
};

// [validation]
struct Validation {
  std::int64_t every = 1000;  // steps; 0: only at the end
  std::int64_t batch = 2;     // samples per card
  std::int64_t patience = 0;  // validations without a better score before training stops; 0: never

  bool operator==(const Validation&) const = default;
};

// [checkpoint]
struct Checkpoint {
  std::int64_t every = 1000;  // steps; 0: only at the end
  std::int64_t keep_last = 3;
  std::int64_t keep_best = 1;

  bool operator==(const Checkpoint&) const = default;
};

// [log]
struct Log {
  std::int64_t every = -1;    // steps; −1: a twentieth of all steps, at most 50 (LogInterval)
  std::int64_t examples = 4;  // tiles in the report

  bool operator==(const Log&) const = default;
};

// [environment]
struct Environment {
  std::int64_t open_files = 4096;
  std::int64_t threads = 0;  // of torch, per rank; 0: cores / ranks
  bool cudnn_benchmark = false;
  std::int64_t timeout = 600;  // seconds that a rank waits for the others
  std::string backend;         // "nccl", "fulldeck", "gloo"; empty: chosen by the device
  double memory_watermark = 0;

  bool operator==(const Environment&) const = default;
};

struct Config {
  std::string name;  // of the job, and of its folder in work_dirs
  std::string work_dirs = "work_dirs";
  std::uint64_t seed = 42;
  std::int64_t steps = 0;  // exactly one of steps and epochs is set
  std::int64_t epochs = 0;
  model_spec::DataOptions data;    // [data]
  model_spec::ModelOptions model;  // [model]
  Train train;
  Validation validation;
  Checkpoint checkpoint;
  Log log;
  Environment environment;

  bool operator==(const Config&) const = default;
};

// The value that -1 stands for in a job with this number of steps; the defaults suit short jobs too.
constexpr std::int64_t WarmupSteps(const Train& train, std::int64_t total) {
  return train.warmup >= 0 ? train.warmup : std::min<std::int64_t>(1000, total / 10);
}
constexpr std::int64_t LogInterval(const Log& log, std::int64_t total) {
  return log.every > 0 ? log.every : std::clamp<std::int64_t>(total / 20, 1, 50);
}

}  // namespace fulldeck::config
