// Batches for the training loop: worker threads load, augment and normalise samples while the loop computes.
//
// What a batch holds depends on the request alone (and on the data): not on the number of workers, not on their timing,
// not on the rank. Augmentation draws from RandomStream(seed, kAugmentation, epoch, sample).
//
// Threads: one (the loop's) calls; the workers are the pipeline's own and end with it. Memory: at most `prefetch`
// batches ahead are held, and one more that was handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "dataset/source.h"

namespace fulldeck::dataset {

struct BatchRequest {
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> indices;
};

struct Batch {
  std::int64_t count = 0, channels = 0, height = 0, width = 0;
  std::shared_ptr<float> images;         // [count, channels, height, width], normalised
  std::shared_ptr<std::uint8_t> masks;   // [count, height, width]; 255: ignored; null for classification
  std::vector<std::int64_t> categories;  // classification: one a sample
  std::vector<std::uint64_t> indices;    // of the samples that are in it
  std::vector<std::uint64_t> skipped;    // asked for, but their files are corrupt
  std::uint64_t fingerprint = 0;         // of indices and pixels
  bool last = true;                      // of its request; false only with PipelineOptions::whole
  double wait_seconds = 0;               // that Next waited for it
};

// A file that could not be read, told once.
struct CorruptFile {
  std::uint64_t index = 0;
  std::string why;  // names the file
};

struct PipelineOptions {
  bool augment = true;  // false: the longer side resized to data.size, padded, nothing random (validation)
  // Validation of segmentation: images as large as they are, padded to a multiple of 16. A request whose images differ
  // in size is answered by several batches, one for each run of equal ones, the last of them with Batch::last.
  bool whole = false;
  std::uint64_t seed = 0;
  // Where batches live; absent: plain memory. For pinned memory.
  // Called from the thread that calls Request and Next.
  std::function<std::shared_ptr<void>(std::size_t bytes)> allocate;
  std::function<void(const CorruptFile&)> on_corrupt;  // from the thread that calls Next
};

class Pipeline {
 public:
  // `source` lives longer.
  Pipeline(const Source& source, const config::Data& data, PipelineOptions options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Never blocks. Requests are answered in their order. Indices lie below source.size(), and there is at least one.
  void Request(BatchRequest request);
  std::size_t requested() const;  // and not yet handed out to its last batch
  // Waits for the next one that was asked for. An error when more files are corrupt than data.corrupt_allowed, with
  // their names; a batch without any readable sample is one too.
  base::Result<Batch> Next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::dataset
