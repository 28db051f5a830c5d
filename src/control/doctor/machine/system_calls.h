// Facts about the machine that no file provides: real system calls, behind an interface so that tests can fake any
// machine. All calls are bounded in time and clean up what they create.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fulldeck::doctor {

struct FileSystemSpace {
  std::uint64_t bytes = 0;
  std::uint64_t bytes_free = 0;  // for this user
  std::uint64_t files = 0;       // inodes; 0 if the file system has no such limit
  std::uint64_t files_free = 0;
};

struct WallClock {
  std::int64_t unix_seconds = 0;
  std::optional<bool> synchronized;  // as reported by the kernel; absent if the query is not permitted
  base::Duration jumped{};           // relative to the steady clock, during a short observation
};

struct NetworkInterface {
  std::string name;
  bool up = false;
  bool loopback = false;
  int mtu = 0;
  std::vector<std::string> addresses;  // numeric, without prefix length
};

// A facility that runs need, and whether it is available to this process: "memfd_create", EPERM under a seccomp filter.
struct Facility {
  std::string name;
  int error = 0;  // errno; 0: it works
};

// The fate of a process whose parent ended before it.
struct OrphanFate {
  bool reaped = false;
  int adopter = 0;  // pid of its second parent: process 1, or the nearest subreaper
  base::Duration took{};
};

// Whether memory for which huge pages are requested (madvise) gets them: anonymous memory, which stages checkpoints,
// and memfd, which the collectives share. Absent: unknown.
struct HugePages {
  std::optional<bool> anonymous;
  std::optional<bool> shared;
};

// Reads 16 bytes of a forked child's memory, whose content differs from this process's own. Returns 0 or errno.
int ReadAnotherProcess();

// Thread safe.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  static const SystemCalls& OfThisMachine();

  virtual base::Result<FileSystemSpace> Space(const std::string& folder) const;
  virtual WallClock Clock() const;

  // Writes `bytes` to a new file in `folder`, syncs, renames, reads back and compares, removes. The error names the
  // failed step.
  virtual base::Result<void> WriteAndReadBack(const std::string& folder, std::size_t bytes) const;
  // Allocates `bytes` on disk without writing them, and releases them: fails if a quota forbids it.
  virtual base::Result<void> Reserve(const std::string& folder, std::uint64_t bytes) const;
  // Small writes, each followed by fsync; returns how long each took. Stops after `timeout`.
  virtual base::Result<std::vector<base::Duration>> SyncTimes(const std::string& folder, int times,
                                                              base::Duration timeout) const;

  // Whether this process can read and write the device node.
  virtual base::Result<void> MayUse(const std::string& path) const;
  // Tries memfd_create, pidfd_open and the other facilities that ranks and launcher use.
  virtual std::vector<Facility> TryFacilities() const;
  // Forks a child that forks a grandchild and exits. Watches for at most `timeout` whether the grandchild, which exits
  // as soon as it is orphaned, is reaped. An error if the test itself is impossible.
  virtual base::Result<OrphanFate> OrphanAProcess(base::Duration timeout) const;
  virtual HugePages TryHugePages() const;

  virtual std::vector<NetworkInterface> Interfaces() const;
  virtual std::string HostName() const;
  // Numeric addresses. Blocks as long as this machine's resolver.
  virtual base::Result<std::vector<std::string>> Resolve(const std::string& name) const;
  // Binds, listens, connects to itself over `address`, and sends bytes both ways.
  virtual base::Result<void> Echo(const std::string& address) const;
  // Binds the port on all interfaces and releases it. The error contains EADDRINUSE if the port is in use.
  virtual base::Result<void> TryPort(int port) const;
};

}  // namespace fulldeck::doctor
