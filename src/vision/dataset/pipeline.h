// Batches for the training loop: worker threads load, augment and normalize samples while the loop computes. Does not
// decide which samples: see the sampler.
//
// The content of a batch depends only on the request and the data; not on the number of workers, their timing, or the
// rank. Augmentation draws from RandomStream(seed, kAugmentation, epoch, sample).
//
// Threads: all calls come from one thread (the loop's). The pipeline owns its workers and joins them in its destructor.
// Memory: at most `prefetch` batches ahead, plus the one that was handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "dataset/source.h"
#include "model_spec/options.h"

namespace fulldeck::dataset {

struct BatchRequest {
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> indices;
};

struct Batch {
  std::int64_t count = 0, channels = 0, height = 0, width = 0;
  std::shared_ptr<float> images;         // [count, channels, height, width], normalized
  std::shared_ptr<std::uint8_t> masks;   // [count, height, width]; 255: ignored; null for classification
  std::vector<std::int64_t> categories;  // classification: one per sample
  std::vector<std::uint64_t> indices;    // of the samples in the batch
  std::vector<std::uint64_t> skipped;    // requested, but their files are corrupt
  std::uint64_t fingerprint = 0;         // of indices and pixels
  bool last = true;                      // of its request; false only with PipelineOptions::whole
  double wait_seconds = 0;               // time that Next waited for it
};

// A file that could not be read; reported once.
struct CorruptFile {
  std::uint64_t index = 0;
  std::string why;  // names the file
};

struct PipelineOptions {
  // False (validation): the longer side resized to data.size, padded, nothing random.
  bool augment = true;
  // Validation of segmentation: images at their original size, padded to a multiple of 16. A request whose images
  // differ in size yields several batches, one for each run of equal sizes; the last one has Batch::last set.
  bool whole = false;
  std::uint64_t seed = 0;
  // Allocates the memory of batches, for example pinned memory; absent: plain memory. Called by the thread that calls
  // Request and Next.
  std::function<std::shared_ptr<void>(std::size_t bytes)> allocate;
  std::function<void(const CorruptFile&)> on_corrupt;  // called by the thread that calls Next
};

class Pipeline {
 public:
  // `source` must outlive the pipeline.
  Pipeline(const Source& source, const model_spec::DataOptions& data, PipelineOptions options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Never blocks. Requests are answered in order. All indices must be below source.size(), and there must be at least
  // one.
  void Request(BatchRequest request);
  std::size_t requested() const;  // requests whose last batch has not been handed out
  // Waits for the next requested batch. An error if more files are corrupt than data.corrupt_allowed (with their
  // names), or if no sample of the batch is readable.
  base::Result<Batch> Next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::dataset
