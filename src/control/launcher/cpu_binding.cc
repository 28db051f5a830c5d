#include "launcher/cpu_binding.h"

#include <algorithm>
#include <string>

namespace fulldeck::launcher {
namespace {

std::string CpuFile(int cpu, const char* file) {
  return "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file;
}

// Those of `rank_cpus` that the kernel lists in `file` together with the first one.
std::vector<int> GroupOf(const std::vector<int>& rank_cpus, const char* file, const base::SystemRoot& root,
                         const device::HostTopology& host) {
  if (rank_cpus.empty()) return {};
  const auto list = root.ReadLine(CpuFile(rank_cpus.front(), file));
  auto group = list ? device::ParseCpuList(*list) : std::nullopt;
  if (!group) return {};
  std::erase_if(*group, [&](int cpu) { return std::find(host.cpus.begin(), host.cpus.end(), cpu) == host.cpus.end(); });
  return *group;
}

std::vector<int> NodeOf(const std::vector<int>& rank_cpus, const device::HostTopology& host) {
  for (const device::NumaNode& node : host.nodes) {
    if (!rank_cpus.empty() && std::find(node.cpus.begin(), node.cpus.end(), rank_cpus.front()) != node.cpus.end())
      return node.cpus;
  }
  return {};
}

}  // namespace

std::vector<int> CpusFor(job::NumaBinding mode, const job::RankPlacement& placement, const device::HostTopology& host,
                         const base::SystemRoot& root) {
  switch (mode) {
    case job::NumaBinding::kNone:
      return host.nodes.size() > 1 ? NodeOf(placement.cpus, host) : std::vector<int>();
    case job::NumaBinding::kNode:
      return NodeOf(placement.cpus, host);
    case job::NumaBinding::kSocket:
      return GroupOf(placement.cpus, "topology/package_cpus_list", root, host);
    case job::NumaBinding::kExclusive:
      return placement.cpus;
    case job::NumaBinding::kCoreComplex:
      return GroupOf(placement.cpus, "cache/index3/shared_cpu_list", root, host);
  }
  return {};
}

}  // namespace fulldeck::launcher
