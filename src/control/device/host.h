// The machine itself: its CPUs, NUMA nodes and memory. It is also the device "cpu", on which any number of ranks may
// run.
#pragma once

#include <string>
#include <vector>

#include "base/files/system_root.h"
#include "device/card.h"

namespace fulldeck::device {

struct NumaNode {
  int number = 0;
  std::vector<int> cpus;
};

struct HostTopology {
  std::vector<int> cpus;        // online
  std::vector<NumaNode> nodes;  // one with all CPUs if the kernel reports none
};

// "0-3,8" gives 0 1 2 3 8; nullopt if it is not such a list. At most 4096 CPUs.
std::optional<std::vector<int>> ParseCpuList(std::string_view text);
// The inverse: "0-3,8".
std::string FormatCpuList(const std::vector<int>& cpus);

HostTopology ReadTopology(const base::SystemRoot& root);

// The machine as a card of kind cpu: model, memory, load.
Card ReadHost(const base::SystemRoot& root);

}  // namespace fulldeck::device
