#include "launcher/run_cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "job/runs/cgroup_folder.h"

namespace fulldeck::launcher {
namespace {

struct Hierarchy {
  std::string mount;        // /sys/fs/cgroup/freezer
  std::string controllers;  // "freezer"; empty for v2
};

// Mount points of cgroup file systems, from /proc/self/mounts.
std::vector<Hierarchy> MountedHierarchies(const base::SystemRoot& root) {
  std::vector<Hierarchy> found;
  const auto mounts = root.ReadFile("/proc/self/mounts");
  if (!mounts) return found;
  for (const std::string_view line : base::Split(*mounts, '\n')) {
    const auto fields = base::Split(line, ' ');
    if (fields.size() < 4) continue;
    if (fields[2] == "cgroup2") found.push_back({std::string(fields[1]), ""});
    if (fields[2] == "cgroup") found.push_back({std::string(fields[1]), std::string(fields[3])});
  }
  return found;
}

bool HasController(const Hierarchy& hierarchy, std::string_view controller) {
  for (const std::string_view option : base::Split(hierarchy.controllers, ',')) {
    if (option == controller) return true;
  }
  return false;
}

// The cgroup of this process in the hierarchy of `controller` (empty: v2), relative to its mount.
std::optional<std::string> OwnPath(const base::SystemRoot& root, std::string_view controller) {
  const auto text = root.ReadFile("/proc/self/cgroup");
  if (!text) return std::nullopt;
  for (const std::string_view line : base::Split(*text, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view names = line.substr(first + 1, second - first - 1);
    bool matches = names == controller;
    for (const std::string_view name : base::Split(names, ',')) matches = matches || name == controller;
    if (matches) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

// Folder of this process's own cgroup. In a container the path may not exist below the mount; then the mount itself.
std::optional<std::string> OwnFolder(const base::SystemRoot& root, std::string_view controller) {
  const auto path = OwnPath(root, controller);
  if (!path) return std::nullopt;
  for (const Hierarchy& hierarchy : MountedHierarchies(root)) {
    const bool right = controller.empty() ? hierarchy.controllers.empty() : HasController(hierarchy, controller);
    if (!right) continue;
    const std::string whole = hierarchy.mount + (*path == "/" ? "" : *path);
    return root.Exists(whole) ? whole : hierarchy.mount;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ReadNumber(const base::SystemRoot& root, const std::string& path) {
  const auto line = root.ReadLine(path);
  return line ? base::ParseInteger<std::uint64_t>(*line) : std::nullopt;
}

// The number after `key` in a file of "key value" lines.
std::optional<std::uint64_t> ReadKey(const base::SystemRoot& root, const std::string& path, std::string_view key) {
  const auto text = root.ReadFile(path);
  if (!text) return std::nullopt;
  for (const std::string_view line : base::Split(*text, '\n')) {
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ') {
      return base::ParseInteger<std::uint64_t>(line.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

// cgroup v1 represents "no limit" as a value larger than any machine's memory.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

}  // namespace

std::optional<RunCgroup> RunCgroup::Make(const std::string& run_id, std::string* why_not) {
  const base::SystemRoot root;
  *why_not = "no cgroup file system is mounted here";
  for (const std::string_view controller : {"", "freezer", "pids"}) {
    const auto parent = OwnFolder(root, controller);
    if (!parent) continue;
    RunCgroup made;
    made.is_v2_ = controller.empty();
    const std::string folder = *parent + "/fulldeck-" + run_id;
    if (mkdir(folder.c_str(), 0755) != 0) {
      *why_not = base::ErrnoError(folder).message;
      continue;
    }
    made.folder_ = folder;
    made.procs_.Reset(open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    if (!made.procs_.valid()) {
      *why_not = base::ErrnoError(folder + "/cgroup.procs").message;
      continue;
    }
    if (!made.is_v2_) return made;
    made.directory_.Reset(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (made.directory_.valid() && access((folder + "/cgroup.kill").c_str(), W_OK) == 0) return made;
    *why_not = folder + " has no cgroup.kill (kernels before 5.14)";
  }
  return std::nullopt;
}

RunCgroup::~RunCgroup() {
  if (!folder_.empty()) job::RemoveCgroup(folder_);
}

std::vector<int> RunCgroup::Members() const {
  std::vector<int> members;
  for (const wire::ProcessIdentity& process : job::ProcessesIn(job::CgroupTree(folder_)))
    members.push_back(process.pid);
  return members;
}

void RunCgroup::Kill() {
  was_killed_ = true;
  job::KillCgroup(folder_);
}

MemoryPressure ReadMemoryPressure(const base::SystemRoot& root) {
  MemoryPressure pressure;
  pressure.machine_kills = ReadKey(root, "/proc/vmstat", "oom_kill");
  if (const auto v1 = OwnFolder(root, "memory")) {
    pressure.cgroup_kills = ReadKey(root, *v1 + "/memory.oom_control", "oom_kill");
    pressure.limit_bytes = ReadNumber(root, *v1 + "/memory.limit_in_bytes");
    pressure.peak_bytes = ReadNumber(root, *v1 + "/memory.max_usage_in_bytes");
  } else if (const auto v2 = OwnFolder(root, "")) {
    pressure.cgroup_kills = ReadKey(root, *v2 + "/memory.events", "oom_kill");
    pressure.limit_bytes = ReadNumber(root, *v2 + "/memory.max");
    pressure.peak_bytes = ReadNumber(root, *v2 + "/memory.peak");
  }
  if (pressure.limit_bytes && *pressure.limit_bytes >= kNoLimit) pressure.limit_bytes.reset();
  return pressure;
}

std::optional<std::string> OutOfMemoryVerdict(const MemoryPressure& before, const MemoryPressure& after) {
  const auto rose = [](const auto& old_count, const auto& new_count) {
    return old_count && new_count && *new_count > *old_count;
  };
  if (rose(before.cgroup_kills, after.cgroup_kills)) {
    std::string text = "out of memory: the kernel killed it because its cgroup reached the memory limit";
    if (after.limit_bytes) text += fmt::format(" of {}", base::FormatByteSize(*after.limit_bytes));
    if (after.peak_bytes) text += fmt::format(" (peak {})", base::FormatByteSize(*after.peak_bytes));
    return text;
  }
  if (rose(before.machine_kills, after.machine_kills)) {
    return "most likely out of memory: the kernel's out-of-memory killer acted on this machine at that time";
  }
  return std::nullopt;
}

}  // namespace fulldeck::launcher
