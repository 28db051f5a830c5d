// Checkpoints: the state of a training as safetensors files with a manifest of checksums, written by one rank in the
// background, and loaded only when every byte of it is what was written.
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
// byte. Python's safetensors reads the tensors. There is no pickle in it, and nothing in it can name code to run.
//
// Save, Load and Finish are collectives: all ranks of the team call them, in the same order. Everything here is called
// from one thread, the one that trains; the writer is a thread of its own on rank 0 (`fulldeck-save`).
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

// What a checkpoint is made of: references to the things that train, each under a name of its own (letters, digits,
// '.',
// '_', '-'). Filled once, then used for every Save and Load; the things must outlive it. All ranks name the same.
//
// In data parallel training all ranks hold the same state, so rank 0's is saved and every rank loads it, however many
// there are then. What differs between ranks (the generators, OfEachRank) is saved for each of them.
class FULLDECK_RUNTIME_API State {
 public:
  State();
  ~State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  // All parameters and buffers, by their names, in NAME.safetensors. Loading needs each of them with the same shape and
  // type, and nothing else in the file.
  State& Module(std::string name, torch::nn::Module& module);

  // torch's Adam, AdamW, SGD, RMSprop or Adagrad: the options of its groups, and what it keeps of each parameter.
  // Parameters are known by their names in the modules of this State (one that is in none: by group and place), so they
  // may stand in another order when it is loaded; the groups may not. Another kind of optimizer is an Error; it can be
  // saved with Tensors() and Text().
  State& Optimizer(std::string name, torch::optim::Optimizer& optimizer);

  // One of torch's schedulers that derive from LRScheduler (StepLR …). Learning rates are the optimizer's.
  State& Scheduler(std::string name, torch::optim::LRScheduler& scheduler);

  // Anything with `std::string ToText() const` and `void FromText(const std::string&)`: a scaler, a sampler, a
  // schedule.
  template <typename T>
  State& Object(std::string name, T& object) {
    return Text(
        std::move(name), [&object] { return std::string(object.ToText()); },
        [&object](const std::string& text) { object.FromText(text); });
  }
  State& Text(std::string name, std::function<std::string()> save, std::function<void(const std::string&)> load);

  // Texts that differ between ranks, 48 KiB a rank in all (the generators take 5). Loading gets those of all ranks that
  // saved, by rank.
  State& OfEachRank(std::string name, std::function<std::string()> save,
                    std::function<void(const std::vector<std::string>&)> load);

  // A variable.
  State& Value(std::string name, bool& value);
  State& Value(std::string name, std::int64_t& value);
  State& Value(std::string name, double& value);
  State& Value(std::string name, std::string& value);

  // Tensors by name, in NAME.safetensors. Loading gets tensors of its own, on the CPU.
  using NamedTensors = std::map<std::string, at::Tensor>;
  State& Tensors(std::string name, std::function<NamedTensors()> save, std::function<void(const NamedTensors&)> load);

  // torch's default generators, the CPU's and that of the team's device, of each rank. With another number of ranks,
  // those that there were before get theirs; a new rank's is seeded from rank 0's, the step and its rank, which is
  // said.
  State& Random();

  class Impl;
  Impl& parts() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct CheckpointOptions {
  // Which ones stay when a newer one is durable: the last, and of all the best (by Save's score; higher is better). The
  // newest that was read back and found good is never removed, and nothing is while saves fail. keep_last = 0 keeps
  // all.
  int keep_last = 3;
  int keep_best = 0;

  // A Save while the one before is still being written: waits for it (told in its report), or is refused, which means
  // that it is not done (report.started is false).
  enum class WhenBusy { kWait, kRefuse };
  WhenBusy when_busy = WhenBusy::kWait;

  // Failed saves in a row that are only told: on stderr at once, and by the next Save's report. One more, and the next
  // Save or Check throws SaveFailed. Training that goes on is worth more than a save that failed once; training that
  // can never be saved is not.
  int failed_saves_allowed = 2;

  // Every checkpoint is read again and compared before it gets its name.
  bool read_back = true;

  // Called on rank 0 when a save has become durable or has failed (then with the reason), from the writer's thread.
  // Must not throw and must not call the Checkpoints.
  std::function<void(std::int64_t step, const std::optional<std::string>& failure)> on_ended;

  // One line on stderr of rank 0 when a save is durable. Failures are told in any case.
  bool announce = true;

  // For tests: what stands for the file system, for as long as the Checkpoints live. Null: the real one.
  checkpoint::Files* files = nullptr;
};

// More saves in a row have failed than the options allow. The text is the last one's. The save that threw it was
// started all the same: whoever catches it loses nothing.
class FULLDECK_RUNTIME_API SaveFailed : public Error {
 public:
  using Error::Error;
  ~SaveFailed() override;
};

struct SaveReport {
  bool started = true;                         // false: refused, the one before was still being written
  std::chrono::nanoseconds stall{0};           // how long training stood still, waiting included
  std::chrono::nanoseconds waited{0};          // of it: for the save before to end
  std::uint64_t bytes = 0;                     // of the state, on rank 0
  bool buffer_grew = false;                    // the copy's memory had to be allocated first; see Prepare
  std::optional<std::string> earlier_failure;  // of the save before, told once; the same on all ranks
};

struct LoadReport {
  std::int64_t step = 0;
  int saved_by_ranks = 0;
  std::string folder;
  std::vector<std::string> passed_over;  // newer ones that were bad, with file, tensor and reason
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds took{0};
};

class FULLDECK_RUNTIME_API Checkpoints {
 public:
  // On rank 0 makes the directory, takes its lock and removes what a writer that died has left; throws on all ranks
  // when that fails, for instance because another job writes there. A collective. Every rank must see the directory.
  Checkpoints(std::string directory, const Team& team, CheckpointOptions options = {});

  // Waits until what is being written is durable. A failure that nobody was told of yet goes to stderr.
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Allocates rank 0's memory for the copy, which the first Save would do otherwise while training waits. Knows how
  // much an optimizer of torch's will keep once it has stepped. Not a collective; does nothing on other ranks.
  void Prepare(const State& state);

  // Copies the state and returns; all ranks wait in the barrier "checkpoint copy" until that is done, not until
  // anything is written. The step must not be negative. Throws SaveFailed, and Error when the state itself cannot be
  // saved (a type that safetensors does not know; the memory for the copy), the same on all ranks.
  SaveReport Save(std::int64_t step, const State& state, std::optional<double> score = std::nullopt);

  // Cheap; for every step. Throws SaveFailed on rank 0 as soon as more saves have failed than are allowed.
  void Check();

  // Loads the newest good checkpoint, or nothing when the directory has none at all. One that is damaged is passed over
  // with a warning that names file and tensor. Throws Error when all are bad, when the state does not fit (every key
  // that does not is named, and nothing was changed) or when the ranks do not see the same directory.
  //
  // The ranks verify a share of the data each and then read what they need: reading again, from the page cache, costs
  // less than sending it, and a rank never believes what it has not checked. No rank's state is touched before all
  // agree.
  std::optional<LoadReport> Load(State& state);

  // Waits until the last save is durable, on all ranks; throws SaveFailed on all when it is not.
  void Finish();

  // Rank 0: the last step that this object has made durable. Other ranks: nothing.
  std::optional<std::int64_t> durable_step() const;
  const std::string& directory() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- weights of others ----

// How names in a file of weights become names of the module. Prefixes first (the first that fits is removed), then
// renames of whole names or, with a '*' at the end of both, of beginnings. Lists of names that may differ take whole
// names, or beginnings with a '*' at the end; names as they are after the renames.
struct WeightRules {
  std::vector<std::string> remove_prefixes;
  std::vector<std::pair<std::string, std::string>> renames;
  std::vector<std::string> may_be_missing;
  std::vector<std::string> may_be_unexpected;
  bool convert_types = false;  // a file in bf16 into a module in float32
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

  // Every key, one a line, under what happened to it.
  FULLDECK_RUNTIME_API std::string Text() const;
};

// Reads the parameters and buffers of a module from a safetensors file. Anything but a full match that the rules do not
// allow by name throws an Error with the whole report, and nothing has been changed. Not a collective.
FULLDECK_RUNTIME_API WeightReport LoadWeights(torch::nn::Module& module, const std::string& path,
                                              const WeightRules& rules = {});

}  // namespace fulldeck
