// Anonymous memory that several processes map: a sealed memfd. The kernel frees it when the last process that has it
// exits for any reason, and a small /dev/shm does not limit it.
//
// Sparse: the size is only address space; pages are allocated when they are reserved or touched. Mappings are excluded
// from core dumps, because dumping one would allocate all of its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::collectives {

// A mapping. Two mappings of the same memory in one process are one object, so that ranks that are threads share
// addresses (and the thread sanitizer sees conflicting accesses). Thread safe, except CloseDescriptor.
class SharedMemory {
 public:
  // Creates memory, sealed against shrinking and growing; `bytes` (not 0) is rounded up to pages. `name` appears in
  // /proc/PID/maps.
  static base::Result<std::shared_ptr<SharedMemory>> Create(const std::string& name, std::uint64_t bytes);
  // Maps all of the memory that a peer passed, after checking its seals and that it has at least `bytes` bytes. The
  // descriptor is not kept.
  static base::Result<std::shared_ptr<SharedMemory>> Open(base::UniqueFd descriptor, std::uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }  // aligned to huge pages if the system has them
  std::uint64_t size() const { return size_; }
  // To be passed to other processes. -1 for memory that was opened, and after CloseDescriptor.
  int descriptor() const { return passed_on_ ? -1 : descriptor_.get(); }
  // Closes the descriptor, after which the memory cannot be passed to other processes; the mapping, Reserve and Release
  // need no descriptor. (Before Linux 5.14 Reserve needs it, and it is kept; there, Reserve on memory that was opened
  // gets SIGBUS instead of an error when memory runs out.) Not while another thread uses the descriptor or is in
  // Reserve.
  void CloseDescriptor();

  // Allocates the pages of a range now, close to this thread's CPU, as huge pages if possible: an error now instead of
  // SIGBUS later. The range is extended to whole pages. Existing contents are kept. After an error, a part of the range
  // may be allocated: Release frees it.
  base::Result<void> Reserve(std::uint64_t offset, std::uint64_t bytes);
  // Frees the pages of a range, which reads as zero afterwards. The range is reduced to whole pages.
  void Release(std::uint64_t offset, std::uint64_t bytes);

 private:
  SharedMemory() = default;
  // Call with the table of mappings locked.
  static base::Result<std::shared_ptr<SharedMemory>> Map(int descriptor, std::uint64_t bytes);

  base::UniqueFd descriptor_;
  bool passed_on_ = false;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t device_ = 0;  // with inode_: identifies the memory
  std::uint64_t inode_ = 0;
};

}  // namespace fulldeck::collectives
