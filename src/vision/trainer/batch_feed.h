// The batches that a rank trains on, in the sampler's order, on its device: the sampler says which samples, the
// pipeline loads and augments them in its threads, and where the device computes by itself the next batch is copied to
// it while it still works on the last one.
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

// What a rank gets to see of a batch.
struct LabeledBatch {
  at::Tensor images;                   // [rows, channels, H, W] on the device
  at::Tensor labels;                   // [rows, H, W] or [rows], int64; 255 ignored
  std::vector<std::int64_t> labeled;   // pixels (samples) that count, by row
  std::vector<std::uint64_t> samples;  // index in the data set, by row
  std::int64_t all_labeled() const;
};

// Puts a batch of the pipeline on a device. A label that is no class is an Error that names the sample. `non_blocking`:
// the copy may go on after the call, and the batch must stay until it is done.
LabeledBatch ToDevice(const dataset::Batch& batch, const dataset::Source& source, std::int64_t classes,
                      c10::Device device, bool non_blocking = false);

struct TrainingBatch : LabeledBatch {
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;          // of the global batch, in its epoch
  std::uint64_t fingerprint = 0;     // of indices and pixels
  bool first_of_epoch = false;       // begins it (a batch after which a resume took place does not)
  SamplerState after;                // the position once this batch was trained on
  double wait_seconds = 0;           // that the loop stood still for it
  std::vector<std::string> skipped;  // names of samples whose files are corrupt
};

class BatchFeed {
 public:
  // All of them live longer. `batches`: of the rest of the training; no more than these are read.
  BatchFeed(const dataset::Source& source, const config::Data& data, Sampler sampler, std::int64_t classes,
            std::uint64_t seed, std::int64_t batches, c10::Device device);
  ~BatchFeed();

  // Throws an Error when too many files are corrupt.
  TrainingBatch Next();
  // After the work on a batch was handed to the device: copies the next one meanwhile. Does nothing where the loop's
  // own thread does the computing.
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
  std::int64_t remaining_;  // batches to be requested
  std::size_t prefetch_;
  struct PendingRequest {
    std::uint64_t epoch = 0;
    SampleBatch batch;
  };
  std::deque<PendingRequest> pending_;
  std::vector<std::string> corrupt_;
  std::unique_ptr<dataset::Pipeline> pipeline_;
  std::unique_ptr<Staged> staged_;
  std::unique_ptr<Staged> previous_;  // keeps the host's memory until its copy is done
  std::optional<c10::Stream> stream_;
};

}  // namespace fulldeck::trainer
