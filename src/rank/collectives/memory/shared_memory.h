// Memory without a name that several processes map: a sealed memfd. The kernel frees it when the last process that has
// it is gone, however that ended, and a small /dev/shm does not bound it.
//
// Sparse: a size is address space, and pages come when they are reserved or touched. Mappings are left out of core
// dumps, because writing one would back the whole of it with pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::collectives {

// A mapping. Two mappings of the same memory in one process are one and the same, so that threads that stand in for
// ranks share their addresses (and the thread sanitizer sees them meet). Any thread, but for CloseDescriptor.
class SharedMemory {
 public:
  // New memory, sealed against shrinking and growing; `bytes` (not 0) is rounded up to pages. `name` shows up in
  // /proc/PID/maps.
  static base::Result<std::shared_ptr<SharedMemory>> Create(const std::string& name, std::uint64_t bytes);
  // Memory that a peer passed: checked for its seals and that it has at least `bytes` before it is mapped, as a whole.
  // The descriptor is not kept.
  static base::Result<std::shared_ptr<SharedMemory>> Open(base::UniqueFd descriptor, std::uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }  // at a boundary of huge pages, where the system has them
  std::uint64_t size() const { return size_; }
  // For passing it on. -1 on memory that was opened, and after CloseDescriptor.
  int descriptor() const { return passed_on_ ? -1 : descriptor_.get(); }
  // It will not be passed on any more: mapping, Reserve and Release need no descriptor. (Before Linux 5.14 Reserve
  // does, and keeps it; there, Reserve on memory that was opened gets SIGBUS instead of an error when there are no
  // pages left.) Not while another thread uses the descriptor or is in Reserve.
  void CloseDescriptor();

  // Backs a stretch with pages now, near the processor of this thread, huge ones where the system has them: an error
  // instead of SIGBUS later. Rounded out to pages. What lies there already stays as it is. After an error some of the
  // stretch may be backed: Release gives it back.
  base::Result<void> Reserve(std::uint64_t offset, std::uint64_t bytes);
  // Gives the pages of a stretch back; it reads as zero afterwards. Rounded in to pages.
  void Release(std::uint64_t offset, std::uint64_t bytes);

 private:
  SharedMemory() = default;
  // With the table of mappings locked.
  static base::Result<std::shared_ptr<SharedMemory>> Map(int descriptor, std::uint64_t bytes);

  base::UniqueFd descriptor_;
  bool passed_on_ = false;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t device_ = 0;  // with inode_: which memory this is
  std::uint64_t inode_ = 0;
};

}  // namespace fulldeck::collectives
