// A cgroup that holds all ranks of a run and everything that they start: v2 in the launcher's own cgroup, otherwise v1
// in the freezer or pids hierarchy. It also contains processes that escaped the process tree, and `fulldeck stop` uses
// it if both processes of the launcher were killed. Without permission to create one, the launcher works without it.
//
// Also reads the memory use and limit of the memory cgroup of this process, and whether the kernel killed processes in
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/system_root.h"
#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::launcher {

class RunCgroup {
 public:
  // Named fulldeck-RUN_ID. Returns nullopt if no cgroup can be created; `why_not` receives the reason.
  static std::optional<RunCgroup> Make(const std::string& run_id, std::string* why_not);

  RunCgroup(RunCgroup&&) = default;
  RunCgroup& operator=(RunCgroup&&) = default;
  ~RunCgroup();  // removes the folder, which must be empty

  const std::string& folder() const { return folder_; }
  // For SpawnOptions; at least one of the two is -1.
  int born_into() const { return is_v2_ && !was_killed_ ? directory_.get() : -1; }
  int procs_fd() const { return is_v2_ && !was_killed_ ? -1 : procs_.get(); }

  std::vector<int> Members() const;
  // Sends SIGKILL to every member; see job::KillCgroup. Later processes enter by writing to procs_fd() instead of being
  // born in the cgroup: some kernels (for example 6.18) kill every process that is born into a cgroup that was killed
  // before.
  void Kill();

 private:
  RunCgroup() = default;
  std::string folder_;
  bool is_v2_ = false;
  bool was_killed_ = false;
  base::UniqueFd directory_;
  base::UniqueFd procs_;
};

// Counters of the kernel's out-of-memory killer; compare a reading before with one after.
struct MemoryPressure {
  std::optional<std::uint64_t> cgroup_kills;  // in the memory cgroup of this process
  std::optional<std::uint64_t> machine_kills;
  std::optional<std::uint64_t> limit_bytes;  // of that cgroup; absent: no limit
  std::optional<std::uint64_t> peak_bytes;
};
MemoryPressure ReadMemoryPressure(const base::SystemRoot& root = base::SystemRoot());

// "out of memory: …" with limit and peak if, according to the counters, the kernel killed a process for memory between
// the two readings; otherwise nullopt. Pure.
std::optional<std::string> OutOfMemoryVerdict(const MemoryPressure& before, const MemoryPressure& after);

}  // namespace fulldeck::launcher
