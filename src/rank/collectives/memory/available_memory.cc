#include "collectives/memory/available_memory.h"

#include <string_view>

#include "base/text.h"

namespace fulldeck::collectives {
namespace {

// The number in a line "name value" or "name: value".
std::optional<std::uint64_t> ValueOf(std::string_view text, std::string_view name) {
  for (const std::string_view line : base::Split(text, '\n')) {
    if (!line.starts_with(name)) continue;
    std::string_view rest = line.substr(name.size());
    if (rest.starts_with(':')) rest.remove_prefix(1);
    if (rest.empty() || (rest.front() != ' ' && rest.front() != '\t')) continue;
    rest = base::Trim(rest);
    return base::ParseInteger<std::uint64_t>(rest.substr(0, rest.find(' ')));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> NumberIn(const base::SystemRoot& root, const std::string& path) {
  const auto line = root.ReadLine(path);
  return line ? base::ParseInteger<std::uint64_t>(*line) : std::nullopt;
}

struct CgroupFiles {
  const char* mount;
  const char* limit;  // contains no number if there is no limit
  const char* usage;
  const char* reclaimable;  // a line of memory.stat
};
constexpr CgroupFiles kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

std::optional<std::uint64_t> LeftIn(const base::SystemRoot& root, const CgroupFiles& files, const std::string& cgroup) {
  const std::string folder = files.mount + cgroup + "/";
  const auto limit = NumberIn(root, folder + files.limit);
  const auto usage = NumberIn(root, folder + files.usage);
  if (!limit || !usage) return std::nullopt;
  const auto stat = root.ReadFile(folder + "memory.stat", 1 << 16);
  const std::uint64_t reclaimable = stat ? ValueOf(*stat, files.reclaimable).value_or(0) : 0;
  const std::uint64_t kept = *usage > reclaimable ? *usage - reclaimable : 0;
  return *limit > kept ? *limit - kept : 0;
}

}  // namespace

std::optional<AvailableMemory> ReadAvailableMemory(const base::SystemRoot& root) {
  std::optional<AvailableMemory> least;
  const auto consider = [&](std::optional<std::uint64_t> bytes, const std::string& of) {
    if (bytes && (!least || *bytes < least->bytes)) least = AvailableMemory{*bytes, of};
  };
  if (const auto text = root.ReadFile("/proc/meminfo", 1 << 16)) {
    if (const auto available = ValueOf(*text, "MemAvailable")) {
      consider((*available + ValueOf(*text, "SwapFree").value_or(0)) * 1024, "this machine");
    }
  }
  const auto membership = root.ReadFile("/proc/self/cgroup", 1 << 16);
  if (!membership) return least;
  // "4:memory:/job" in cgroup v1, "0::/job" in v2.
  for (const std::string_view line : base::Split(*membership, '\n')) {
    const auto parts = base::Split(line, ':');
    if (parts.size() < 3) continue;
    const bool version_2 = parts[0] == "0" && parts[1].empty();
    bool version_1 = false;
    for (const std::string_view controller : base::Split(parts[1], ','))
      version_1 = version_1 || controller == "memory";
    if (!version_1 && !version_2) continue;
    // Inside a container, only a prefix of the path may be visible; that prefix is the container's cgroup, and it is
    // used.
    std::string cgroup(line.substr(parts[0].size() + parts[1].size() + 2));
    while (true) {
      if (cgroup.ends_with('/')) cgroup.pop_back();
      consider(LeftIn(root, version_1 ? kVersion1 : kVersion2, cgroup),
               "the cgroup " + (cgroup.empty() ? "/" : base::Printable(cgroup)));
      const auto parent = cgroup.rfind('/');
      if (parent == std::string::npos) break;
      cgroup.resize(parent);
    }
  }
  return least;
}

}  // namespace fulldeck::collectives
