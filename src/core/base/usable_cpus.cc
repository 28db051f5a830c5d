#include "base/usable_cpus.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/system_root.h"
#include "base/text.h"

namespace fulldeck::base {
namespace {

constexpr int kMaxCpus = 1 << 16;
constexpr int kMaxCgroupDepth = 64;

bool HasWord(std::string_view list, std::string_view word) {
  const auto words = Split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A cgroup of this process: the mount point of its hierarchy, and its path below that.
struct Folder {
  std::string mount;
  std::string below;  // "/a/b", or empty
};

// For v1, in the hierarchy of the controller "cpu"; for v2, pass an empty controller.
std::optional<Folder> OwnCgroup(const SystemRoot& root, std::string_view controller) {
  const auto memberships = root.ReadFile("/proc/self/cgroup");
  const auto mounts = root.ReadFile("/proc/self/mountinfo");
  if (!memberships || !mounts) return std::nullopt;

  std::optional<std::string> path;
  for (const std::string_view line : Split(*memberships, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    if (HasWord(line.substr(first + 1, second - first - 1), controller)) path = std::string(line.substr(second + 1));
  }
  if (!path) return std::nullopt;

  const std::string_view type = controller.empty() ? "cgroup2" : "cgroup";
  for (const std::string_view line : Split(*mounts, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = Split(line.substr(0, dash), ' ');
    const auto after = Split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3 || after[0] != type) continue;
    if (!controller.empty() && !HasWord(after[2], controller)) continue;
    // The mount may show only a part of the tree: a container sees its own cgroup as the root, while the path may still
    // be that of the host. A path that is not below the mount cannot be followed; then only the mount itself is used.
    std::string below = *path;
    if (before[3] != "/" && below.starts_with(before[3])) below.erase(0, before[3].size());
    if (below == "/" || !below.starts_with('/') || below.find("/..") != std::string::npos) below.clear();
    return Folder{std::string(before[4]), below};
  }
  return std::nullopt;
}

// The quota in whole CPUs; nullopt without a quota.
std::optional<std::int64_t> Whole(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<std::int64_t> ReadNumber(const SystemRoot& root, const std::string& path) {
  const auto line = root.ReadLine(path);
  return line ? ParseInteger<std::int64_t>(*line) : std::nullopt;
}

std::optional<std::int64_t> QuotaOf(const SystemRoot& root, const std::string& folder, bool is_v2) {
  if (!is_v2) {
    return Whole(ReadNumber(root, folder + "/cpu.cfs_quota_us"), ReadNumber(root, folder + "/cpu.cfs_period_us"));
  }
  const auto line = root.ReadLine(folder + "/cpu.max");
  if (!line) return std::nullopt;
  const auto words = Split(*line, ' ');
  if (words.size() != 2) return std::nullopt;
  return Whole(ParseInteger<std::int64_t>(words[0]), ParseInteger<std::int64_t>(words[1]));
}

}  // namespace

int UsableCpus(const SystemRoot& root, int allowed) {
  std::int64_t usable = allowed;
  for (const std::string_view controller : {"", "cpu"}) {
    auto folder = OwnCgroup(root, controller);
    if (!folder) continue;
    for (int depth = 0; depth < kMaxCgroupDepth; ++depth) {
      const auto quota = QuotaOf(root, folder->mount + folder->below, controller.empty());
      if (quota) usable = std::min(usable, *quota);
      if (folder->below.empty()) break;
      folder->below.erase(folder->below.rfind('/'));
    }
  }
  return static_cast<int>(std::max<std::int64_t>(usable, 1));
}

std::vector<std::uint64_t> AllowedCpus() {
  // The kernel rejects a mask that is smaller than its own, and otherwise returns how many bytes it wrote.
  for (int cpus = 1024; cpus <= kMaxCpus; cpus *= 4) {
    std::vector<std::uint64_t> mask(static_cast<std::size_t>(cpus) / 64);
    const long written = syscall(SYS_sched_getaffinity, 0, mask.size() * sizeof mask[0], mask.data());
    if (written > 0) return mask;
  }
  return {1};
}

int UsableCpus(int allowed) {
  return UsableCpus(SystemRoot(), allowed);
}

int UsableCpus() {
  int allowed = 0;
  for (const std::uint64_t word : AllowedCpus()) allowed += std::popcount(word);
  return UsableCpus(allowed);
}

}  // namespace fulldeck::base
