// Decides which rank trains on which samples of a dataset, and when. It does not load data. The order is different in
// every epoch and the same for all ranks; global batch b of epoch e is the same set of samples with any number of
// ranks; no sample is in two shards. A position can be saved and resumed in the middle of an epoch, even with another
// number of ranks or another batch size: exactly the remaining samples follow.
//
//   fulldeck::Sampler sampler({.size = data.size(), .global_batch = 1024, .seed = session->seed()}, session->team());
//   for (; sampler.epoch() < 90; sampler.NextEpoch()) {
//     while (auto batch = sampler.Next()) {
//       Train(batch->indices);
//       …save(batch->after.ToText());
//     }
//   }
//
// Makes no torch calls. The order takes no memory (random.h). Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/team.h"

namespace fulldeck {

// What happens to the samples at the end of an epoch that do not fill a global batch.
enum class LastBatch {
  kDrop,   // they are skipped; different ones in the next epoch, because the order differs
  kPad,    // the batch is filled with the first samples of the epoch's order, which are then used twice
  kShort,  // every sample exactly once: the last batch is smaller, and the ranks' shares of it differ by up to one
           // sample and may be empty; the loss must then be weighted by share (SampleBatch::global_size)
};

struct SamplerOptions {
  std::uint64_t size = 0;          // of the dataset; not 0
  std::uint64_t global_batch = 0;  // samples per step over all ranks; a multiple of the number of ranks
  std::uint64_t seed = 0;
  bool shuffle = true;  // false: 0, 1, 2 … in every epoch
  LastBatch last = LastBatch::kDrop;
};

// A position, and the order that it refers to. Plain numbers, the same on all ranks.
struct SamplerState {
  std::uint64_t size = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::uint64_t epoch = 0;
  std::uint64_t consumed = 0;  // samples of the epoch used so far by all ranks together

  bool operator==(const SamplerState&) const = default;

  // "size=1000 seed=42 shuffle=1 epoch=3 consumed=512"
  FULLDECK_RUNTIME_API std::string ToText() const;
  // Throws an Error for anything else.
  FULLDECK_RUNTIME_API static SamplerState FromText(std::string_view text);
};

struct SampleBatch {
  std::uint64_t number = 0;            // of the global batch in its epoch, counted from where this sampler began
  std::uint64_t global_size = 0;       // total samples of the batch over all ranks
  std::vector<std::uint64_t> indices;  // this rank's share
  SamplerState after;                  // save it once this batch was trained on, whatever was prefetched
};

class FULLDECK_RUNTIME_API Sampler {
 public:
  // Throws an Error for invalid options.
  Sampler(const SamplerOptions& options, int rank, int world_size);
  Sampler(const SamplerOptions& options, const Team& team) : Sampler(options, team.rank, team.world_size) {}

  // This rank's share of the next global batch; nullopt at the end of the epoch.
  std::optional<SampleBatch> Next();
  void NextEpoch() { BeginEpoch(epoch_ + 1); }
  void BeginEpoch(std::uint64_t epoch);

  std::uint64_t epoch() const { return epoch_; }
  // Global batches left in the epoch.
  std::uint64_t batches_left() const;

  SamplerState State() const;
  // The state's seed and order replace those of the options. Throws an Error if the dataset's size differs or the
  // position is past the end.
  void Restore(const SamplerState& state);
  // The same as a string, for fulldeck::State::Object.
  std::string ToText() const { return State().ToText(); }
  void FromText(std::string_view text) { Restore(SamplerState::FromText(text)); }

 private:
  SamplerOptions options_;
  std::uint64_t rank_;
  std::uint64_t world_size_;
  std::uint64_t epoch_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace fulldeck
