// Checkpoints: saves the state of a training as safetensors files with a manifest of checksums. Rank 0 writes them in
// the background. A checkpoint is loaded only if every byte matches its manifest. This is not a general serializer: it
// saves what State refers to.
//
//   fulldeck::State state;
//   state.Module("model", *model).Optimizer("optimizer", adamw).Object("sampler", sampler).Random();
//   fulldeck::Checkpoints checkpoints("runs/a/checkpoints", team);
//   const auto resumed = checkpoints.Load(state);
//   for (std::int64_t step = resumed ? resumed->step + 1 : 1; step <= steps; ++step) {
//     …
//     if (step % 1000 == 0) checkpoints.Save(step, state);
//   }
//   checkpoints.Finish();
//
// On disk: DIR/step-000001234/{NAME.safetensors …, state.json, manifest.json}; docs/checkpoints.md specifies every
// byte. Python's safetensors can read the tensors. There is no pickle, and nothing in a checkpoint can name code to
// run.
//
// Save, Load and Finish are collectives: all ranks of the team call them, in the same order. Call everything here from
// the training thread only. The writer is a separate thread on rank 0 (`fulldeck-save`).
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/team.h"

namespace torch::optim {
class LRScheduler;
}  // namespace torch::optim

namespace fulldeck {

namespace checkpoint {
class Files;  // src/rank/checkpoint/files.h
}  // namespace checkpoint

// What a checkpoint contains: references to the objects of the training, each under a unique name (letters, digits,
// '.', '_', '-'). Fill it once and use it for every Save and Load. The objects must outlive it. All ranks use the same
// names.
//
// In data parallel training all ranks hold the same state, so only rank 0's is saved and every rank loads it, even if
// the number of ranks has changed. State that differs between ranks (the generators, OfEachRank) is saved per rank.
class FULLDECK_RUNTIME_API State {
 public:
  State();
  ~State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  // All parameters and buffers by name, in NAME.safetensors. Loading requires each of them with the same shape and
  // type, and no others in the file.
  State& Module(std::string name, torch::nn::Module& module);

  // torch's Adam, AdamW, SGD, RMSprop or Adagrad: the options of its groups, and its state of each parameter.
  // Parameters are identified by their names in the modules of this State (a parameter in none of them: by group and
  // index), so their order may differ when it is loaded; the order of the groups may not. Any other kind of optimizer
  // is an Error; save it with Tensors() and Text().
  State& Optimizer(std::string name, torch::optim::Optimizer& optimizer);

  // A torch scheduler that derives from LRScheduler (StepLR …). The learning rates are saved with the optimizer.
  State& Scheduler(std::string name, torch::optim::LRScheduler& scheduler);

  // Any object with `std::string ToText() const` and `void FromText(const std::string&)`: GradScaler, Sampler, a
  // schedule.
  template <typename T>
  State& Object(std::string name, T& object) {
    return Text(
        std::move(name), [&object] { return std::string(object.ToText()); },
        [&object](const std::string& text) { object.FromText(text); });
  }
  State& Text(std::string name, std::function<std::string()> save, std::function<void(const std::string&)> load);

  // Strings that differ between ranks, at most 48 KiB per rank in total (the generators take 5). Loading passes the
  // strings of all ranks that saved, indexed by rank.
  State& OfEachRank(std::string name, std::function<std::string()> save,
                    std::function<void(const std::vector<std::string>&)> load);

  // A single variable.
  State& Value(std::string name, bool& value);
  State& Value(std::string name, std::int64_t& value);
  State& Value(std::string name, double& value);
  State& Value(std::string name, std::string& value);

  // Tensors by name, in NAME.safetensors. Loading passes newly allocated tensors on the CPU.
  using NamedTensors = std::map<std::string, at::Tensor>;
  State& Tensors(std::string name, std::function<NamedTensors()> save, std::function<void(const NamedTensors&)> load);

  // Per rank, torch's default generators: the CPU's and that of the team's device. If the number of ranks has changed,
  // ranks that existed before get their generators back. New ranks are seeded from rank 0's generator, the step and
  // their rank, and this is logged.
  State& Random();

  class Impl;
  Impl& parts() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct CheckpointOptions {
  // Which checkpoints to keep when a newer one becomes durable: the last keep_last, and the keep_best with the highest
  // Save score of all. The newest checkpoint that was read back successfully is never deleted, and nothing is deleted
  // while saves fail. keep_last = 0 keeps all.
  int keep_last = 3;
  int keep_best = 0;

  // If Save is called while the previous checkpoint is still being written: kWait waits for it (SaveReport::waited),
  // kRefuse skips the new save (SaveReport::started is false).
  enum class WhenBusy { kWait, kRefuse };
  WhenBusy when_busy = WhenBusy::kWait;

  // How many consecutive saves may fail with only a report: immediately on stderr, and in the next Save's report. After
  // one more failure the next Save or Check throws SaveFailed. A single failed save is not worth stopping a training
  // for; a training that can never be saved is.
  int failed_saves_allowed = 2;

  // Read every checkpoint back and compare it before it gets its final name.
  bool read_back = true;

  // Called from the writer's thread on rank 0 when a save has become durable or has failed (then with the reason). Must
  // not throw and must not call the Checkpoints object.
  std::function<void(std::int64_t step, const std::optional<std::string>& failure)> on_ended;

  // Print one line on rank 0's stderr when a save is durable. Failures are always printed.
  bool announce = true;

  // For tests: replaces the file system. Must outlive the Checkpoints object. Null: the real one.
  checkpoint::Files* files = nullptr;
};

// More consecutive saves have failed than the options allow. The message is that of the last failure. The save that
// threw it was still started, so catching it loses nothing.
class FULLDECK_RUNTIME_API SaveFailed : public Error {
 public:
  using Error::Error;
  ~SaveFailed() override;
};

struct SaveReport {
  bool started = true;                         // false: refused because the previous save was still being written
  std::chrono::nanoseconds stall{0};           // how long training was blocked, including `waited`
  std::chrono::nanoseconds waited{0};          // of that: for the previous save to finish
  std::uint64_t bytes = 0;                     // of rank 0's state
  bool buffer_grew = false;                    // the copy buffer had to be allocated first; see Prepare
  std::optional<std::string> earlier_failure;  // of the previous save, reported once; the same on all ranks
};

struct LoadReport {
  std::int64_t step = 0;
  int saved_by_ranks = 0;
  std::string folder;
  std::vector<std::string> passed_over;  // newer checkpoints that were corrupt, with file, tensor and reason
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds took{0};
};

class FULLDECK_RUNTIME_API Checkpoints {
 public:
  // On rank 0: creates the directory, locks it and removes what a writer that died has left there. If that fails, for
  // instance because another job writes there, throws on all ranks. A collective. Every rank must see the directory.
  Checkpoints(std::string directory, const Team& team, CheckpointOptions options = {});

  // Waits until the pending save is durable. A failure that has not been reported yet goes to stderr.
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Allocates rank 0's copy buffer; otherwise the first Save does that while training waits. Includes the state that a
  // torch optimizer allocates in its first step. Not a collective; does nothing on other ranks.
  void Prepare(const State& state);

  // Copies the state and returns. All ranks wait in the barrier "checkpoint copy" until the copy is done, not until the
  // data is written. `step` must not be negative. Throws SaveFailed, or Error when the state cannot be saved (a type
  // that safetensors does not have; no memory for the copy); the same on all ranks.
  SaveReport Save(std::int64_t step, const State& state, std::optional<double> score = std::nullopt);

  // Cheap enough for every step. Throws SaveFailed on rank 0 as soon as more saves have failed than allowed.
  void Check();

  // Loads the newest valid checkpoint; returns nothing if the directory has none at all. Skips a corrupt one with a
  // warning that names file and tensor. Throws Error when all are corrupt, when the state does not match (the error
  // names every key, and nothing has been changed) or when the ranks do not see the same directory.
  //
  // Each rank verifies a share of the data and then reads what it needs. Reading again from the page cache costs less
  // than sending the data, and a rank never uses data that was not verified. No rank's state is changed before all
  // agree.
  std::optional<LoadReport> Load(State& state);

  // Waits on all ranks until the last save is durable; throws SaveFailed on all of them if it failed.
  void Finish();

  // Rank 0: the last step that this object has made durable. Other ranks: nullopt.
  std::optional<std::int64_t> durable_step() const;
  const std::string& directory() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- pretrained weights ----

// How names in a weight file map to names in the module. Prefixes are removed first (the first match only), then names
// are renamed: whole names, or prefixes if both sides end in '*'. The lists of names that may differ use the names
// after renaming: whole names, or prefixes that end in '*'.
struct WeightRules {
  std::vector<std::string> remove_prefixes;
  std::vector<std::pair<std::string, std::string>> renames;
  std::vector<std::string> may_be_missing;
  std::vector<std::string> may_be_unexpected;
  bool convert_types = false;  // for example a bf16 file into a float32 module
};

struct WeightReport {
  struct Wrong {
    std::string name;
    std::string in_file;    // "F32 [7, 3]"
    std::string in_module;  // "F32 [8, 3]"
  };
  std::vector<std::string> matched;
  std::vector<std::string> missing;     // in the module, not in the file
  std::vector<std::string> unexpected;  // in the file, not in the module
  std::vector<Wrong> wrong_shape;
  std::vector<Wrong> wrong_type;

  // Every key, one per line, grouped by result.
  FULLDECK_RUNTIME_API std::string Text() const;
};

// Reads the parameters and buffers of a module from a safetensors file. Any mismatch that the rules do not allow by
// name throws an Error with the whole report, and the module is unchanged. Not a collective.
FULLDECK_RUNTIME_API WeightReport LoadWeights(torch::nn::Module& module, const std::string& path,
                                              const WeightRules& rules = {});

}  // namespace fulldeck
