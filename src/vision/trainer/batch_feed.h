// The batches that a rank trains on, in the sampler's order, on its device. The sampler selects the samples, and the
// pipeline loads and augments them in its threads. On a device that runs asynchronously, the next batch is copied while
// the device still works on the current one.
//
// Threads: the loop's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <fulldeck/sampler.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// One rank's rows of a batch.
struct LabeledBatch {
  at::Tensor images;                   // [rows, channels, H, W] on the device
  at::Tensor labels;                   // [rows, H, W] or [rows], int64; 255 ignored
  std::vector<std::int64_t> labeled;   // labeled pixels (samples), by row
  std::vector<std::uint64_t> samples;  // index in the dataset, by row
  std::int64_t all_labeled() const;
};

// Copies a batch of the pipeline to a device. An invalid label throws an Error that names the sample. `non_blocking`:
// the copy may continue after the call; `batch` must stay alive until it is done.
LabeledBatch ToDevice(const dataset::Batch& batch, const dataset::Source& source, std::int64_t classes,
                      c10::Device device, bool non_blocking = false);

struct TrainingBatch : LabeledBatch {
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;       // of the global batch in its epoch
  std::uint64_t fingerprint = 0;  // of indices and pixels
  // Whether it is the first batch of its epoch (false for the first batch after a resume within an epoch).
  bool first_of_epoch = false;
  SamplerState after;                // the position after training on this batch
  double wait_seconds = 0;           // time that the loop waited for it
  std::vector<std::string> skipped;  // names of samples whose files are corrupt
};

class BatchFeed {
 public:
  // All references must outlive the feed. `batches`: the remaining batches of the training; it reads no more than
  // these.
  BatchFeed(const dataset::Source& source, const model_spec::DataOptions& data, Sampler sampler, std::int64_t classes,
            std::uint64_t seed, std::int64_t batches, c10::Device device);
  ~BatchFeed();

  // Throws an Error if too many files are corrupt.
  TrainingBatch Next();
  // Call it after the work on a batch was submitted to the device: copies the next batch meanwhile. Does nothing if the
  // loop's thread computes by itself.
  void Stage();

  const std::vector<std::string>& corrupt() const { return corrupt_; }

 private:
  void RequestAhead();
  struct Staged;
  std::unique_ptr<Staged> Fetch(bool non_blocking);

  const dataset::Source& source_;
  const c10::Device device_;
  const std::int64_t classes_;
  Sampler sampler_;
  std::int64_t remaining_;  // batches not yet requested
  std::size_t prefetch_;
  struct PendingRequest {
    std::uint64_t epoch = 0;
    SampleBatch batch;
  };
  std::deque<PendingRequest> pending_;
  std::vector<std::string> corrupt_;
  std::unique_ptr<dataset::Pipeline> pipeline_;
  std::unique_ptr<Staged> staged_;
  // Keeps the host memory alive until its copy is done.
  std::unique_ptr<Staged> previous_;
  std::optional<c10::Stream> stream_;
};

}  // namespace fulldeck::trainer
