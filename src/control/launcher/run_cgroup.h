// A cgroup that holds all ranks of a run and everything that they start, where one can be made: v2 in the launcher's
// own cgroup, else v1 in the freezer or pids hierarchy. It finds even what would escape the process tree, and it is
// what a later `fulldeck stop` uses when both processes of the launcher were killed at once. Without permission there
// is none, and the launcher works without.
//
// Also reads how much memory the cgroup of this machine's limits has used, and whether the kernel killed for it.
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
  // Named fulldeck-RUN_ID. Nothing when no cgroup can be made; `why_not` says the reason.
  static std::optional<RunCgroup> Make(const std::string& run_id, std::string* why_not);

  RunCgroup(RunCgroup&&) = default;
  RunCgroup& operator=(RunCgroup&&) = default;
  ~RunCgroup();  // removes the folder; it must be empty

  const std::string& folder() const { return folder_; }
  // For SpawnOptions: one of the two is -1.
  int born_into() const { return is_v2_ && !was_killed_ ? directory_.get() : -1; }
  int procs_fd() const { return is_v2_ && !was_killed_ ? -1 : procs_.get(); }

  std::vector<int> Members() const;
  // SIGKILL to every member; see job::KillCgroup. Who comes later enters by itself: kernels (6.18 for one) kill whoever
  // is born into a cgroup that was killed before.
  void Kill();

 private:
  RunCgroup() = default;
  std::string folder_;
  bool is_v2_ = false;
  bool was_killed_ = false;
  base::UniqueFd directory_;
  base::UniqueFd procs_;
};

// Counters of the kernel's out-of-memory killer, to be compared before and after.
struct MemoryPressure {
  std::optional<std::uint64_t> cgroup_kills;  // in the memory cgroup that this process is in
  std::optional<std::uint64_t> machine_kills;
  std::optional<std::uint64_t> limit_bytes;  // of that cgroup; absent: none
  std::optional<std::uint64_t> peak_bytes;
};
MemoryPressure ReadMemoryPressure(const base::SystemRoot& root = base::SystemRoot());

// "out of memory: …" with limit and peak, when the counters say that the kernel killed for memory between the two
// readings; nothing otherwise. Pure.
std::optional<std::string> OutOfMemoryVerdict(const MemoryPressure& before, const MemoryPressure& after);

}  // namespace fulldeck::launcher
