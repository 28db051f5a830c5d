#include "fulldeck/sampler.h"

#include <algorithm>

#include "base/text.h"
#include "fulldeck/random.h"

namespace fulldeck {

std::string SamplerState::ToText() const {
  return "size=" + std::to_string(size) + " seed=" + std::to_string(seed) + " shuffle=" + (shuffle ? "1" : "0") +
         " epoch=" + std::to_string(epoch) + " consumed=" + std::to_string(consumed);
}

SamplerState SamplerState::FromText(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    throw Error("\"" + base::Printable(text.substr(0, 200)) + "\" is no position of a sampler: " + why + ".");
  };
  SamplerState state;
  std::uint64_t shuffle = 0;
  const std::pair<std::string_view, std::uint64_t*> fields[] = {{"size", &state.size},
                                                                {"seed", &state.seed},
                                                                {"shuffle", &shuffle},
                                                                {"epoch", &state.epoch},
                                                                {"consumed", &state.consumed}};
  const auto parts = base::Split(text, ' ');
  if (parts.size() != std::size(fields)) refuse("it has not five fields");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    const std::string name(fields[i].first);
    if (parts[i].substr(0, equals) != name || equals == std::string_view::npos) refuse("field " + name + " is missing");
    const auto number = base::ParseInteger<std::uint64_t>(parts[i].substr(equals + 1));
    if (!number) refuse("field " + name + " is not a whole number");
    *fields[i].second = *number;
  }
  if (shuffle > 1) refuse("shuffle must be 0 or 1");
  state.shuffle = shuffle == 1;
  if (state.size == 0 || state.consumed > state.size) refuse("the position is behind the end of the data set");
  return state;
}

Sampler::Sampler(const SamplerOptions& options, int rank, int world_size)
    : options_(options), rank_(static_cast<std::uint64_t>(rank)), world_size_(static_cast<std::uint64_t>(world_size)) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw Error("a sampler of rank " + std::to_string(rank) + " of " + std::to_string(world_size) + " cannot be.");
  }
  if (options.size == 0) throw Error("a sampler needs a data set with at least one sample; its size is 0.");
  if (options.global_batch == 0 || options.global_batch % world_size_ != 0) {
    throw Error("a global batch of " + std::to_string(options.global_batch) + " samples cannot be shared evenly by " +
                std::to_string(world_size) + " ranks. Take a multiple of " + std::to_string(world_size) + ".");
  }
  if (options.last == LastBatch::kDrop && options.size < options.global_batch) {
    throw Error("the data set has " + std::to_string(options.size) + " samples, less than the global batch of " +
                std::to_string(options.global_batch) +
                ", so that every epoch would be empty. Take a smaller batch, or LastBatch::kPad.");
  }
}

void Sampler::BeginEpoch(std::uint64_t epoch) {
  epoch_ = epoch;
  consumed_ = 0;
  number_ = 0;
}

std::uint64_t Sampler::batches_left() const {
  const std::uint64_t left = options_.size - consumed_;
  const std::uint64_t whole = left / options_.global_batch;
  return options_.last == LastBatch::kDrop || left % options_.global_batch == 0 ? whole : whole + 1;
}

std::optional<SampleBatch> Sampler::Next() {
  if (batches_left() == 0) return std::nullopt;
  const RandomOrder order(options_.size, options_.seed, Purpose::kDataOrder, epoch_);
  const std::uint64_t present = std::min(options_.global_batch, options_.size - consumed_);
  SampleBatch batch;
  batch.number = number_++;
  batch.global_size = options_.last == LastBatch::kShort ? present : options_.global_batch;
  // Full batches divide evenly; of a short batch each rank gets its share of the range.
  const std::uint64_t begin = batch.global_size * rank_ / world_size_;
  const std::uint64_t end = batch.global_size * (rank_ + 1) / world_size_;
  batch.indices.reserve(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) {
    const std::uint64_t position = i < present ? consumed_ + i : (i - present) % options_.size;
    batch.indices.push_back(options_.shuffle ? order.At(position) : position);
  }
  consumed_ += present;
  batch.after = State();
  return batch;
}

SamplerState Sampler::State() const {
  return {options_.size, options_.seed, options_.shuffle, epoch_, consumed_};
}

void Sampler::Restore(const SamplerState& state) {
  if (state.size != options_.size) {
    throw Error("the saved position is one in a data set of " + std::to_string(state.size) +
                " samples, and this one has " + std::to_string(options_.size) +
                ": the rest of the epoch cannot be known. Begin a new epoch.");
  }
  if (state.consumed > state.size) {
    throw Error("the saved position, " + std::to_string(state.consumed) + ", is behind the end of the data set of " +
                std::to_string(state.size) + " samples.");
  }
  options_.seed = state.seed;
  options_.shuffle = state.shuffle;
  epoch_ = state.epoch;
  consumed_ = state.consumed;
  number_ = 0;
}

}  // namespace fulldeck
