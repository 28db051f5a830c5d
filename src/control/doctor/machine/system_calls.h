// What the doctor's checks ask of the machine that no file below a root tells: system calls that are really made.
// Behind an interface, so that a test can be any machine. Everything here is bounded in time, and takes away what it
// made.
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
  std::uint64_t files = 0;       // inodes; 0 where the file system has no such number
  std::uint64_t files_free = 0;
};

struct WallClock {
  std::int64_t unix_seconds = 0;
  std::optional<bool> synchronized;  // what the kernel says; nothing where it may not be asked
  base::Duration jumped{};           // against the steady clock, while it was watched for a moment
};

struct NetworkInterface {
  std::string name;
  bool up = false;
  bool loopback = false;
  int mtu = 0;
  std::vector<std::string> addresses;  // numeric, without prefix length
};

// A facility that runs need, and whether this process is given it: "memfd_create", EPERM under a seccomp filter.
struct Facility {
  std::string name;
  int error = 0;  // errno; 0: it works
};

// What became of a process whose parent ended before it.
struct OrphanFate {
  bool reaped = false;
  int adopter = 0;  // pid of its second parent: process 1, or the nearest subreaper
  base::Duration took{};
};

// Whether memory that asks for huge pages (madvise) is given them: anonymous memory, as checkpoints are staged in, and
// memfd, as the collectives share. Nothing: it cannot be found out.
struct HugePages {
  std::optional<bool> anonymous;
  std::optional<bool> shared;
};

// Reads 16 bytes of a forked child's memory, whose content differs from this process's own. 0, or errno.
int ReadAnotherProcess();

// Any thread.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  static const SystemCalls& OfThisMachine();

  virtual base::Result<FileSystemSpace> Space(const std::string& folder) const;
  virtual WallClock Clock() const;

  // Writes `bytes` to a new file in `folder`, syncs, renames, reads back and compares, removes. The error says at which
  // step.
  virtual base::Result<void> WriteAndReadBack(const std::string& folder, std::size_t bytes) const;
  // Asks for `bytes` on disk without writing them, and gives them back: what a quota forbids fails here.
  virtual base::Result<void> Reserve(const std::string& folder, std::uint64_t bytes) const;
  // Small writes, each followed by fsync: how long each took. Stops after `timeout`.
  virtual base::Result<std::vector<base::Duration>> SyncTimes(const std::string& folder, int times,
                                                              base::Duration timeout) const;

  // Can this process read and write the device node?
  virtual base::Result<void> MayUse(const std::string& path) const;
  // memfd_create, pidfd_open and what else ranks and launcher use, each tried.
  virtual std::vector<Facility> TryFacilities() const;
  // Forks a child that forks a grandchild and ends; watches for at most `timeout` whether the grandchild, which ends
  // as soon as it is orphaned, is reaped. An error where that cannot be tried.
  virtual base::Result<OrphanFate> OrphanAProcess(base::Duration timeout) const;
  virtual HugePages TryHugePages() const;

  virtual std::vector<NetworkInterface> Interfaces() const;
  virtual std::string HostName() const;
  // Numeric addresses; as long as the resolver of this machine takes.
  virtual base::Result<std::vector<std::string>> Resolve(const std::string& name) const;
  // Binds, listens, connects to itself over `address`, and sends bytes both ways.
  virtual base::Result<void> Echo(const std::string& address) const;
  // Binds the port on all interfaces, and lets it go. EADDRINUSE stands in the error.
  virtual base::Result<void> TryPort(int port) const;
};

}  // namespace fulldeck::doctor
