#include "doctor/machine/system_calls.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/files/unique_fd.h"

// Kernels have these; the C library that this is built for may lack their names.
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001U
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_ALLOW_SEALING 0x0002U
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SHRINK 0x0002
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace fulldeck::doctor {
namespace {

constexpr long kClockWatchMilliseconds = 30;

int MakeSealedMemory() {
  const base::UniqueFd memory(
      static_cast<int>(syscall(SYS_memfd_create, "fulldeck-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!memory.valid()) return errno;
  constexpr std::size_t kBytes = 1 << 16;
  if (ftruncate(memory.get(), kBytes) != 0 || fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return errno;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return errno;
  std::memset(mapped, 1, kBytes);
  munmap(mapped, kBytes);
  return 0;
}

int OpenOwnPidfd() {
  const base::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  return process.valid() ? 0 : errno;
}

// Passes a descriptor through a Unix socket, as ranks do to share memory.
int PassDescriptor() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return errno;
  const base::UniqueFd one(ends[0]);
  const base::UniqueFd other(ends[1]);
  char byte = 'x';
  iovec bytes{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &ends[0], sizeof(int));
  if (sendmsg(one.get(), &message, MSG_NOSIGNAL) != 1) return errno;
  room.fill(0);
  message.msg_controllen = room.size();
  if (recvmsg(other.get(), &message, MSG_CMSG_CLOEXEC) != 1) return errno;
  header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return EPROTO;
  int passed = -1;
  std::memcpy(&passed, CMSG_DATA(header), sizeof passed);
  const base::UniqueFd owner(passed);
  return 0;
}

int SetOwnAffinity() {
  // Room for 16384 CPUs: the kernel rejects a mask that is smaller than its own.
  std::array<unsigned long, 16384 / 8 / sizeof(unsigned long)> mask{};
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask.data());
  if (bytes <= 0) return errno;
  return syscall(SYS_sched_setaffinity, 0, static_cast<std::size_t>(bytes), mask.data()) == 0 ? 0 : errno;
}

int ReadMemoryPolicy() {
  int mode = 0;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? 0 : errno;
}

std::int64_t Nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

const SystemCalls& SystemCalls::OfThisMachine() {
  static const SystemCalls kernel;
  return kernel;
}

base::Result<FileSystemSpace> SystemCalls::Space(const std::string& folder) const {
  struct statvfs answer {};
  if (statvfs(folder.c_str(), &answer) != 0) return base::ErrnoError(folder);
  FileSystemSpace space;
  space.bytes = std::uint64_t{answer.f_blocks} * answer.f_frsize;
  space.bytes_free = std::uint64_t{answer.f_bavail} * answer.f_frsize;
  space.files = answer.f_files;
  space.files_free = answer.f_favail;
  return space;
}

WallClock SystemCalls::Clock() const {
  WallClock clock;
  timex asked{};
  const int state = adjtimex(&asked);
  if (state >= 0) clock.synchronized = state != TIME_ERROR && (asked.status & STA_UNSYNC) == 0;
  // Reads wall and steady clock twice: they may drift by parts per thousand, not more.
  const std::int64_t wall = Nanoseconds(CLOCK_REALTIME);
  const std::int64_t steady = Nanoseconds(CLOCK_MONOTONIC);
  const timespec pause{0, kClockWatchMilliseconds * 1'000'000};
  nanosleep(&pause, nullptr);
  const std::int64_t steady_passed = Nanoseconds(CLOCK_MONOTONIC) - steady;
  const std::int64_t wall_passed = Nanoseconds(CLOCK_REALTIME) - wall;
  clock.jumped = base::Duration(wall_passed - steady_passed);
  clock.unix_seconds = wall / 1'000'000'000;
  return clock;
}

base::Result<void> SystemCalls::MayUse(const std::string& path) const {
  if (access(path.c_str(), R_OK | W_OK) != 0) return base::ErrnoError(path);
  return {};
}

std::vector<Facility> SystemCalls::TryFacilities() const {
  return {{"memfd_create", MakeSealedMemory()},  {"SCM_RIGHTS", PassDescriptor()},
          {"pidfd_open", OpenOwnPidfd()},        {"sched_setaffinity", SetOwnAffinity()},
          {"get_mempolicy", ReadMemoryPolicy()}, {"process_vm_readv", ReadAnotherProcess()}};
}

}  // namespace fulldeck::doctor
