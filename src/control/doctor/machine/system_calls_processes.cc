// Facts that need another process, and whether the kernel really gives huge pages to memory that requests them.
//
// The children are forked from a multithreaded process: they only make system calls, allocate nothing, and exit with
// _exit. They report through a page that parent and children share.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/files/system_root.h"
#include "base/files/unique_fd.h"
#include "base/text.h"
#include "doctor/machine/system_calls.h"
#include "wire/process_identity.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001U
#endif

namespace fulldeck::doctor {
namespace {

constexpr base::Duration kChildTimeout = std::chrono::seconds(5);

void Pause() {
  const timespec moment{0, 1'000'000};
  nanosleep(&moment, nullptr);
}

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

void Reap(pid_t child) {
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// A mapping that is unmapped with this object.
class Mapping {
 public:
  Mapping(std::size_t bytes, int flags, int fd = -1)
      : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0)) {}
  ~Mapping() {
    if (valid()) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool valid() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Shared between the processes of an orphan's family. Each field has one writer. The pid is stored with release after
// the other fields and read with acquire, so a reader that sees the pid sees them too.
struct FamilyPage {
  std::atomic<int> orphan;   // written by the child before it exits; -errno: it could not fork
  std::atomic<int> adopter;  // written by the orphan once it has a new parent
};
static_assert(std::atomic<int>::is_always_lock_free);

// In the grandchild: waits until its parent has exited, records its new parent, and exits. Lives for at most `polls`
// ms.
[[noreturn]] void BeOrphaned(FamilyPage& page, pid_t parent) {
  for (int polls = 0; polls < 10'000 && getppid() == parent; ++polls) Pause();
  page.adopter.store(getppid(), std::memory_order_release);
  _exit(0);
}

// In the child.
[[noreturn]] void LeaveAnOrphan(FamilyPage& page) {
  const pid_t self = getpid();
  const pid_t orphan = fork();
  if (orphan == 0) BeOrphaned(page, self);
  page.orphan.store(orphan > 0 ? orphan : -errno, std::memory_order_release);
  _exit(0);
}

// How many KiB of the mapping at `address` /proc/self/smaps counts under `field` ("AnonHugePages").
std::optional<std::uint64_t> HugeKiB(const void* address, std::string_view field) {
  const auto text = base::SystemRoot().ReadFile("/proc/self/smaps", std::size_t{64} << 20);
  if (!text) return std::nullopt;
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (const std::string_view line : base::Split(*text, '\n')) {
    const auto dash = line.find('-');
    const auto space = line.find(' ');
    if (dash != std::string_view::npos && space != std::string_view::npos && dash < space) {
      const auto begin = base::ParseInteger<std::uint64_t>(line.substr(0, dash), 16);
      const auto end = base::ParseInteger<std::uint64_t>(line.substr(dash + 1, space - dash - 1), 16);
      if (begin && end) inside = *begin <= wanted && wanted < *end;
      continue;
    }
    if (!inside || !line.starts_with(field) || !line.substr(field.size()).starts_with(':')) continue;
    std::string_view value = base::Trim(line.substr(field.size() + 1));
    return base::ParseInteger<std::uint64_t>(value.substr(0, value.find(' ')));
  }
  return std::nullopt;
}

// Requests huge pages for one aligned page of the mapping, touches it, and checks whether it became one.
std::optional<bool> BecomesHuge(const Mapping& mapping, std::size_t huge, std::string_view field) {
  if (!mapping.valid()) return std::nullopt;
  const auto begin = (reinterpret_cast<std::uintptr_t>(mapping.data()) + huge - 1) / huge * huge;
  char* const page =
      reinterpret_cast<char*>(begin);  // NOLINT(performance-no-int-to-ptr): an address inside the mapping
  if (madvise(page, huge, MADV_HUGEPAGE) != 0) return false;
  std::memset(page, 1, huge);
  const auto kib = HugeKiB(page, field);
  if (!kib) return std::nullopt;
  return *kib > 0;
}

}  // namespace

base::Result<OrphanFate> SystemCalls::OrphanAProcess(base::Duration timeout) const {
  const Mapping shared(sizeof(FamilyPage), MAP_SHARED | MAP_ANONYMOUS);
  if (!shared.valid()) return base::ErrnoError("no memory can be shared with a child");
  auto& page = *new (shared.data()) FamilyPage{};
  const base::TimePoint begin = Now();
  const pid_t child = fork();
  if (child < 0) return base::ErrnoError("no process can be forked");
  if (child == 0) LeaveAnOrphan(page);
  Reap(child);
  const int orphan = page.orphan.load(std::memory_order_acquire);
  if (orphan <= 0) return base::ErrnoError("a child cannot fork", orphan < 0 ? -orphan : ECHILD);
  const auto identity = wire::IdentityOf(orphan);
  OrphanFate fate;
  // Gone from /proc: reaped. Still there at the timeout: an unreaped zombie, or a process that never got to run, which
  // says nothing about its new parent.
  while (true) {
    const auto stat = identity ? wire::ReadProcessStat(orphan) : std::nullopt;
    fate.took = Now() - begin;
    fate.adopter = page.adopter.load(std::memory_order_acquire);
    fate.reaped = !stat || stat->start_ticks != identity->start_ticks;
    if (fate.reaped) return fate;
    if (fate.took >= timeout) {
      if (stat->state != 'Z') return base::Error{"the orphan has not ended", ETIMEDOUT};
      fate.adopter = stat->parent;
      return fate;
    }
    Pause();
  }
}

HugePages SystemCalls::TryHugePages() const {
  const auto line = base::SystemRoot().ReadLine("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  const auto huge = line ? base::ParseInteger<std::size_t>(*line) : std::nullopt;
  HugePages given;
  if (!huge || *huge == 0 || *huge > (std::size_t{64} << 20)) return given;
  const Mapping anonymous(2 * *huge, MAP_PRIVATE | MAP_ANONYMOUS);
  given.anonymous = BecomesHuge(anonymous, *huge, "AnonHugePages");
  const base::UniqueFd memory(static_cast<int>(syscall(SYS_memfd_create, "fulldeck-doctor", MFD_CLOEXEC)));
  if (!memory.valid() || ftruncate(memory.get(), static_cast<off_t>(2 * *huge)) != 0) return given;
  const Mapping file(2 * *huge, MAP_SHARED, memory.get());
  given.shared = BecomesHuge(file, *huge, "ShmemPmdMapped");
  return given;
}

int ReadAnotherProcess() {
  struct Page {
    std::atomic<int> ready;
  };
  const Mapping shared(sizeof(Page), MAP_SHARED | MAP_ANONYMOUS);
  if (!shared.valid()) return errno;
  auto& page = *new (shared.data()) Page{};
  // The child overwrites its copy, so reading our own memory by mistake would be detected.
  std::array<char, 16> text{"of the parent "};
  constexpr std::array<char, 16> kOfTheChild{"of the child   "};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);  // the doctor ended this check before the line above
    volatile char* const to = text.data();
    for (std::size_t i = 0; i < kOfTheChild.size(); ++i) to[i] = kOfTheChild[i];
    page.ready.store(1, std::memory_order_release);
    while (true) pause();
  }
  const base::TimePoint until = Now() + kChildTimeout;
  while (page.ready.load(std::memory_order_acquire) == 0 && Now() < until) Pause();
  std::array<char, 16> got{};
  const iovec here{got.data(), got.size()};
  const iovec there{text.data(), text.size()};
  int error = ETIMEDOUT;
  if (page.ready.load(std::memory_order_acquire) != 0) {
    const long bytes = syscall(SYS_process_vm_readv, child, &here, 1UL, &there, 1UL, 0UL);
    // A short read and wrong bytes set no errno.
    error = bytes < 0 ? errno : got == kOfTheChild ? 0 : EIO;
  }
  kill(child, SIGKILL);
  Reap(child);
  return error;
}

}  // namespace fulldeck::doctor
