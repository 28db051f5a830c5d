#include "trainer/batch_feed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fulldeck/error.h>

#include <numeric>

#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "config/config.h"
#include "config/job_folder.h"
#include "config/read.h"
#include "config/step_shape.h"
#include "dataset/checks.h"
#include "dataset/pipeline.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "report/event_file.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "report/scores.h"

namespace fulldeck::trainer {
namespace {

// Simulated cards compute in the caller's thread, like the CPU, so a copy would overlap with nothing.
bool RunsAsynchronously(c10::Device device) {
  return device.is_cuda() || device.is_xpu();
}

// Only copies from pinned memory run asynchronously.
std::shared_ptr<void> PinnedMemory(std::size_t bytes) {
  const at::Tensor held =
      at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  return {held.data_ptr(), [held](void*) {}};
}

template <typename Value>
at::Tensor View(const std::shared_ptr<Value>& memory, at::IntArrayRef sizes, at::ScalarType type) {
  return at::from_blob(
      memory.get(), sizes, [memory](void*) {}, at::TensorOptions().dtype(type));
}

[[noreturn]] void NoSuchClass(std::int64_t label, const std::string& name, std::int64_t classes) {
  throw Error("the label " + std::to_string(label) + " of " + base::Printable(name) + " is none of the " +
              std::to_string(classes) + " classes (0 to " + std::to_string(classes - 1) +
              ", or the ignored label). Correct the mask, or data.classes; masks that count from 1 need "
              "data.reduce_zero_label = true.");
}

std::int64_t CountLabels(const std::uint8_t* mask, std::int64_t pixels, std::int64_t classes, const std::string& name) {
  // A histogram answers both questions (invalid labels, number of labeled pixels) in one pass.
  std::vector<std::int64_t> counts(256, 0);
  for (std::int64_t i = 0; i < pixels; ++i) ++counts[mask[i]];
  for (std::int64_t label = classes; label < dataset::kIgnored; ++label) {
    if (counts[static_cast<std::size_t>(label)] != 0) NoSuchClass(label, name, classes);
  }
  return pixels - counts[dataset::kIgnored];
}

}  // namespace

std::int64_t LabeledBatch::all_labeled() const {
  return std::accumulate(labeled.begin(), labeled.end(), std::int64_t{0});
}

LabeledBatch ToDevice(const dataset::Batch& batch, const dataset::Source& source, std::int64_t classes,
                      c10::Device device, bool non_blocking) {
  LabeledBatch labeled_batch;
  labeled_batch.samples = batch.indices;
  labeled_batch.images = View(batch.images, {batch.count, batch.channels, batch.height, batch.width}, at::kFloat);
  if (batch.masks != nullptr) {
    const std::int64_t pixels = batch.height * batch.width;
    for (std::int64_t row = 0; row < batch.count; ++row) {
      const auto sample = batch.indices[static_cast<std::size_t>(row)];
      labeled_batch.labeled.push_back(
          CountLabels(batch.masks.get() + row * pixels, pixels, classes, source.Name(sample)));
    }
    labeled_batch.labels = View(batch.masks, {batch.count, batch.height, batch.width}, at::kByte);
  } else {
    for (std::size_t row = 0; row < batch.categories.size(); ++row) {
      const std::int64_t category = batch.categories[row];
      if (category < 0 || category >= classes) NoSuchClass(category, source.Name(batch.indices[row]), classes);
      labeled_batch.labeled.push_back(1);
    }
    labeled_batch.labels = at::tensor(batch.categories, at::kLong);
  }
  labeled_batch.images = labeled_batch.images.to(device, labeled_batch.images.scalar_type(), non_blocking);
  labeled_batch.labels =
      labeled_batch.labels.to(device, labeled_batch.labels.scalar_type(), non_blocking).to(at::kLong);
  return labeled_batch;
}

struct BatchFeed::Staged {
  TrainingBatch batch;
  dataset::Batch host;
  std::optional<c10::Event> copied;
};

BatchFeed::BatchFeed(const dataset::Source& source, const model_spec::DataOptions& data, Sampler sampler,
                     std::int64_t classes, std::uint64_t seed, std::int64_t batches, c10::Device device)
    : source_(source),
      device_(device),
      classes_(classes),
      sampler_(std::move(sampler)),
      remaining_(batches),
      prefetch_(static_cast<std::size_t>(std::max<std::int64_t>(data.prefetch, 1))) {
  dataset::PipelineOptions options;
  options.augment = true;
  options.seed = seed;
  if (device.is_cuda()) options.allocate = PinnedMemory;
  options.on_corrupt = [this](const dataset::CorruptFile& file) { corrupt_.push_back(base::Printable(file.why)); };
  pipeline_ = std::make_unique<dataset::Pipeline>(source, data, std::move(options));
  RequestAhead();
}

BatchFeed::~BatchFeed() {
  // Pending copies still read the host memory.
  if (staged_ && staged_->copied) staged_->copied->synchronize();
  if (previous_ && previous_->copied) previous_->copied->synchronize();
}

void BatchFeed::RequestAhead() {
  while (remaining_ > 0 && pending_.size() < prefetch_) {
    auto batch = sampler_.Next();
    if (!batch) {
      sampler_.NextEpoch();
      continue;
    }
    pipeline_->Request({sampler_.epoch(), batch->indices});
    pending_.push_back({sampler_.epoch(), *std::move(batch)});
    --remaining_;
  }
}

TrainingBatch BatchFeed::Next() {
  if (staged_ == nullptr) return Fetch(false)->batch;
  previous_ = std::move(staged_);
  const c10::impl::VirtualGuardImpl device(device_.type());
  const c10::Stream current = device.getStream(device_);
  previous_->copied->block(current);
  // The tensors were allocated on the copy stream and are used on this one.
  previous_->batch.images.record_stream(current);
  previous_->batch.labels.record_stream(current);
  return std::move(previous_->batch);
}

std::unique_ptr<BatchFeed::Staged> BatchFeed::Fetch(bool non_blocking) {
  if (pending_.empty()) throw Error("more batches are asked for than the training has.");
  auto got = pipeline_->Next();
  if (!got.ok()) throw Error(got.error().message);
  auto staged = std::make_unique<Staged>();
  staged->host = *std::move(got);
  const dataset::Batch& host = staged->host;
  const PendingRequest request = std::move(pending_.front());
  pending_.pop_front();
  RequestAhead();
  TrainingBatch& batch = staged->batch;
  static_cast<LabeledBatch&>(batch) = ToDevice(host, source_, classes_, device_, non_blocking);
  batch.epoch = request.epoch;
  batch.number = request.batch.number;
  batch.after = request.batch.after;
  batch.first_of_epoch = request.batch.after.consumed == request.batch.global_size;
  batch.fingerprint = host.fingerprint;
  batch.wait_seconds = host.wait_seconds;
  for (const std::uint64_t sample : host.skipped) batch.skipped.push_back(source_.Name(sample));
  return staged;
}

void BatchFeed::Stage() {
  if (!RunsAsynchronously(device_) || staged_ != nullptr || pending_.empty()) return;
  if (!stream_) stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  // The step that uses the copy was submitted since, so this rarely waits.
  if (previous_) previous_->copied->synchronize();
  previous_.reset();
  const c10::StreamGuard on_copy_stream(*stream_);
  staged_ = Fetch(true);
  staged_->copied.emplace(device_.type());
  staged_->copied->record(*stream_);
}

}  // namespace fulldeck::trainer
