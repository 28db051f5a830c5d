// StagingBuffer: memory that a state is copied into while training waits. Allocated once, in huge pages where the
// kernel gives them, and touched, so that a copy into it meets no page fault. CopyAll copies with all processors that
// the thread may use and past the caches, which the training needs for itself.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace fulldeck::checkpoint {

class StagingBuffer {
 public:
  StagingBuffer() = default;
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // At least `bytes`, touched. What was in it before is lost when it has to grow.
  base::Result<void> Reserve(std::uint64_t bytes);

  unsigned char* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  unsigned char* data_ = nullptr;
  std::uint64_t size_ = 0;
};

struct CopyJob {
  const void* from = nullptr;
  void* to = nullptr;
  std::uint64_t bytes = 0;
};

// The areas must not overlap.
void CopyAll(const std::vector<CopyJob>& jobs);

}  // namespace fulldeck::checkpoint
