#include "collectives/memory/shared_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/files/system_root.h"
#include "base/text.h"
#include "collectives/memory/available_memory.h"

namespace fulldeck::collectives {
namespace {

// Missing from the headers of portable builds.
constexpr int kMadvPopulateWrite = 23;  // Linux 5.14
constexpr int kMadvCollapse = 25;       // Linux 6.1
constexpr int kAddSeals = 1033;
constexpr int kGetSeals = 1034;
constexpr int kSeals = 0x0001 | 0x0002 | 0x0004;  // F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW

constexpr std::uint64_t kMaxHugePage = std::uint64_t{32} << 20;

std::uint64_t PageBytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// 0: the system has none, or such large ones (512 MiB with 64 KiB pages) that a range rarely contains one.
std::uint64_t HugePageBytes() {
  static const std::uint64_t huge = [] {
    const auto line = base::SystemRoot().ReadLine("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    const std::uint64_t bytes = line ? base::ParseInteger<std::uint64_t>(*line).value_or(0) : 0;
    const bool sound = bytes > PageBytes() && bytes <= kMaxHugePage && (bytes & (bytes - 1)) == 0;
    return sound ? bytes : 0;
  }();
  return huge;
}

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}
std::uint64_t RoundDown(std::uint64_t value, std::uint64_t to) {
  return value / to * to;
}

// For an empty range, the kernel only checks whether it supports the advice.
bool KnowsPopulateWrite() {
  return madvise(nullptr, 0, kMadvPopulateWrite) == 0;
}

using MemoryKey = std::pair<std::uint64_t, std::uint64_t>;
struct MappingTable {
  std::mutex mutex;
  std::map<MemoryKey, std::weak_ptr<SharedMemory>> mappings;
};
// Never destroyed: mappings may outlive the static objects of a program. The fork handlers hold the lock during fork,
// so it is free in the child.
MappingTable& Mappings() {
  static MappingTable* const table = [] {
    pthread_atfork([] { Mappings().mutex.lock(); }, [] { Mappings().mutex.unlock(); },
                   [] { Mappings().mutex.unlock(); });
    return new MappingTable;
  }();
  return *table;
}

// Maps `bytes` at an address where a huge page may begin: a file is mapped with huge pages only if offset and address
// are congruent.
void* MapAligned(int descriptor, std::uint64_t bytes) {
  const auto map = [&](void* at, int flags) {
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | flags, descriptor, 0);
  };
  const std::uint64_t alignment = HugePageBytes();
  if (alignment == 0 || bytes < alignment) return map(nullptr, 0);
  const std::uint64_t room = bytes + alignment;
  void* const reserved = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return map(nullptr, 0);
  const auto begin = reinterpret_cast<std::uintptr_t>(reserved);
  const std::uintptr_t aligned = RoundUp(begin, alignment);
  void* const mapped = map(reinterpret_cast<void*>(aligned), MAP_FIXED);
  if (mapped == MAP_FAILED) {
    const int reason = errno;
    munmap(reserved, room);
    errno = reason;
    return mapped;
  }
  if (aligned > begin) munmap(reserved, aligned - begin);
  if (const std::uintptr_t end = aligned + bytes; begin + room > end) {
    munmap(reinterpret_cast<void*>(end), begin + room - end);
  }
  return mapped;
}

int Advise(std::byte* from, std::uint64_t bytes, int advice) {
  while (madvise(from, bytes, advice) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Takes huge pages one by one: allocates the first page of each, then lets the kernel collapse it to a huge page
// immediately. Measured on Linux 6.18 with shmem_enabled=never, 64 MiB: 8 ms, compared with 25 ms for small pages, and
// 60 to 200 ms when all pages are allocated first and collapsed later (the pages have to be copied, and every CPU has
// to be waited for on each). If shmem_enabled lets a page fault take a huge page directly, there is nothing left to
// collapse.
void TakeHugePages(std::byte* from, std::uint64_t bytes) {
  const std::uint64_t huge = HugePageBytes();
  if (huge == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t begin = RoundUp(address, huge);
  const std::uintptr_t end = RoundDown(address + bytes, huge);
  if (begin >= end) return;
  std::byte* const first = from + (begin - address);
  // For systems with shmem_enabled=advise.
  madvise(first, end - begin, MADV_HUGEPAGE);
  for (std::byte* page = first; page < first + (end - begin); page += huge) {
    if (Advise(page, PageBytes(), kMadvPopulateWrite) != 0) return;
    int reason = EAGAIN;
    // EAGAIN: this thread has moved to another CPU since, or another process is touching the page.
    for (int attempt = 0; attempt < 3 && reason == EAGAIN; ++attempt) reason = Advise(page, huge, kMadvCollapse);
    // Old kernels do not support it, and fragmented memory has no huge pages. Small pages suffice then; trying again
    // for each one would only make the kernel search again.
    if (reason != 0 && reason != EAGAIN) return;
  }
}

// Whether more than `at_most` bytes of a page-aligned range have no pages yet.
bool LacksMoreThan(std::uint64_t at_most, std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t kPagesAtOnce = 4096;
  std::array<unsigned char, kPagesAtOnce> present{};
  const std::uint64_t step = kPagesAtOnce * PageBytes();
  std::uint64_t missing = 0;
  for (std::uint64_t at = 0; at < bytes && missing <= at_most; at += step) {
    const std::uint64_t length = std::min(step, bytes - at);
    if (mincore(from + at, length, present.data()) != 0) return false;
    for (std::uint64_t page = 0; page < length / PageBytes(); ++page) {
      missing += (present[page] & 1U) == 0 ? PageBytes() : 0;
    }
  }
  return missing > at_most;
}

// The reason for a lack of memory, if one is known. For small requests, the files are not read.
std::optional<std::string> WhyNotEnough(std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t kSmall = std::uint64_t{64} << 20;
  if (bytes < kSmall) return std::nullopt;
  const auto available = ReadAvailableMemory();
  if (!available || available->bytes >= bytes) return std::nullopt;
  if (!LacksMoreThan(available->bytes, from, bytes)) return std::nullopt;
  return available->of + " has " + base::FormatByteSize(available->bytes) + " left";
}

// An atomic addition of zero keeps what another process writes concurrently.
void TouchPages(std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += PageBytes()) {
    __atomic_fetch_add(reinterpret_cast<unsigned char*>(from + at), 0, __ATOMIC_RELAXED);
  }
}

// In chunks, because a signal makes the kernel free all pages of the call that it interrupts.
int Allocate(int descriptor, std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t chunk = std::min(kChunkBytes, bytes - done);
    if (fallocate(descriptor, 0, static_cast<off_t>(offset + done), static_cast<off_t>(chunk)) == 0) {
      done += chunk;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

base::Result<std::shared_ptr<SharedMemory>> SharedMemory::Map(int descriptor, std::uint64_t bytes) {
  MappingTable& table = Mappings();
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return base::ErrnoError("cannot look at shared memory");
  const MemoryKey key{status.st_dev, status.st_ino};
  std::weak_ptr<SharedMemory>& entry = table.mappings[key];
  if (auto known = entry.lock()) return known;

  void* const data = MapAligned(descriptor, bytes);
  if (data == MAP_FAILED) {
    const int reason = errno;
    table.mappings.erase(key);
    return base::ErrnoError("cannot map " + base::FormatByteSize(bytes) + " of shared memory", reason);
  }
  madvise(data, bytes, MADV_DONTDUMP);
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  memory->data_ = static_cast<std::byte*>(data);
  memory->size_ = bytes;
  memory->device_ = key.first;
  memory->inode_ = key.second;
  entry = memory;
  return memory;
}

base::Result<std::shared_ptr<SharedMemory>> SharedMemory::Create(const std::string& name, std::uint64_t bytes) {
  constexpr std::size_t kMaxName = 200;  // the kernel takes 249
  const std::string what = "cannot make " + base::FormatByteSize(bytes) + " of shared memory";
  if (bytes == 0 || bytes > (std::uint64_t{1} << 62)) return base::ErrnoError(what, EINVAL);
  const std::uint64_t size = RoundUp(bytes, PageBytes());
  // Otherwise the kernel would kill the process with SIGXFSZ.
  struct rlimit limit {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur) {
    return base::ErrnoError(what + " under the limit on the size of files (ulimit -f)", EFBIG);
  }
  const std::string shown = base::Printable(name.substr(0, kMaxName));
  base::UniqueFd descriptor(
      static_cast<int>(syscall(SYS_memfd_create, shown.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!descriptor.valid()) return base::ErrnoError(what);
  if (ftruncate(descriptor.get(), static_cast<off_t>(size)) != 0) return base::ErrnoError(what);
  if (fcntl(descriptor.get(), kAddSeals, kSeals) != 0) return base::ErrnoError("cannot seal shared memory");
  const std::lock_guard lock(Mappings().mutex);
  auto memory = Map(descriptor.get(), size);
  if (memory) (*memory)->descriptor_ = std::move(descriptor);
  return memory;
}

base::Result<std::shared_ptr<SharedMemory>> SharedMemory::Open(base::UniqueFd descriptor, std::uint64_t bytes) {
  const int seals = fcntl(descriptor.get(), kGetSeals);
  if (seals < 0) return base::Error{"this is no shared memory that can be sealed", 0};
  if ((seals & kSeals) != kSeals) {
    return base::Error{"this shared memory is not sealed: it could shrink under whoever uses it", 0};
  }
  struct stat status {};
  if (fstat(descriptor.get(), &status) != 0) return base::ErrnoError("cannot look at shared memory");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0 || size < bytes) {
    return base::Error{
        "this shared memory has " + base::FormatByteSize(size) + ", and " + base::FormatByteSize(bytes) + " are needed",
        0};
  }
  const std::lock_guard lock(Mappings().mutex);
  return Map(descriptor.get(), size);
}

SharedMemory::~SharedMemory() {
  munmap(data_, size_);
  MappingTable& table = Mappings();
  const std::lock_guard lock(table.mutex);
  // Another thread may have mapped the same memory again after the last owner released this mapping.
  const auto entry = table.mappings.find({device_, inode_});
  if (entry != table.mappings.end() && entry->second.expired()) table.mappings.erase(entry);
}

void SharedMemory::CloseDescriptor() {
  passed_on_ = true;
  if (KnowsPopulateWrite()) descriptor_.Reset();
}

base::Result<void> SharedMemory::Reserve(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return {};
  const std::string what = "cannot back " + base::FormatByteSize(bytes) + " of shared memory with pages";
  if (offset > size_ || bytes > size_ - offset) {
    return base::Error{what + ": the memory has only " + base::FormatByteSize(size_), ENOSPC};
  }
  const std::uint64_t begin = RoundDown(offset, PageBytes());
  const std::uint64_t length = RoundUp(offset + bytes, PageBytes()) - begin;
  if (const auto reason = WhyNotEnough(data_ + begin, length)) return base::Error{what + ": " + *reason, ENOMEM};
  if (KnowsPopulateWrite()) {
    TakeHugePages(data_ + begin, length);
    // Not fallocate: it does not use the mapping, so it takes no huge pages on systems with shmem_enabled=advise.
    const int reason = Advise(data_ + begin, length, kMadvPopulateWrite);
    // What would have been SIGBUS is EFAULT here.
    if (reason != 0) return base::ErrnoError(what, reason == EFAULT ? ENOMEM : reason);
    return {};
  }
  if (descriptor_.valid()) {
    if (const int reason = Allocate(descriptor_.get(), begin, length); reason != 0)
      return base::ErrnoError(what, reason);
  }
  TouchPages(data_ + begin, length);
  return {};
}

void SharedMemory::Release(std::uint64_t offset, std::uint64_t bytes) {
  if (offset > size_ || bytes > size_ - offset) return;
  const std::uint64_t begin = RoundUp(offset, PageBytes());
  const std::uint64_t end = RoundDown(offset + bytes, PageBytes());
  if (begin >= end) return;
  // Locked memory (mlockall) is not freed, but it must read as zero too.
  if (Advise(data_ + begin, end - begin, MADV_REMOVE) != 0) std::memset(data_ + begin, 0, end - begin);
}

}  // namespace fulldeck::collectives
