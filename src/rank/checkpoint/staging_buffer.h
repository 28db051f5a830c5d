// StagingBuffer: memory into which state is copied while training waits. Allocated once, with huge pages if available,
// and touched, so that a copy into it causes no page faults. CopyAll uses all CPUs that the thread may use and bypasses
// the caches, which the training needs itself.
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

  // Ensures at least `bytes` bytes, already touched. If the buffer grows, its contents are lost.
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

// The ranges must not overlap.
void CopyAll(const std::vector<CopyJob>& jobs);

}  // namespace fulldeck::checkpoint
