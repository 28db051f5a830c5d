#include "device/host.h"

#include <algorithm>

#include "base/text.h"

namespace fulldeck::device {
namespace {

constexpr int kMaxCpus = 4096;

// The value after "name :" in a file of such lines.
std::optional<std::string> Field(const std::string& text, std::string_view name) {
  for (const std::string_view line : base::Split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && base::Trim(line.substr(0, colon)) == name) {
      return std::string(base::Trim(line.substr(colon + 1)));
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> KibibytesField(const std::string& text, std::string_view name) {
  const auto value = Field(text, name);
  if (!value) return std::nullopt;
  const auto number = base::ParseInteger<std::uint64_t>(base::Split(*value, ' ').front());
  if (!number || *number > (std::uint64_t{1} << 50)) return std::nullopt;
  return *number * 1024;
}

}  // namespace

std::optional<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  if (base::Trim(text).empty()) return cpus;
  for (const std::string_view part : base::Split(base::Trim(text), ',')) {
    const auto ends = base::Split(part, '-');
    const auto first = base::ParseInteger<int>(ends.front());
    const auto last = base::ParseInteger<int>(ends.back());
    if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string FormatCpuList(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[i]);
    if (end > i) text += "-" + std::to_string(cpus[end]);
    i = end + 1;
  }
  return text;
}

HostTopology ReadTopology(const base::SystemRoot& root) {
  HostTopology topology;
  if (const auto line = root.ReadLine("/sys/devices/system/cpu/online")) {
    topology.cpus = ParseCpuList(*line).value_or(std::vector<int>());
  }
  for (const std::string& name : root.List("/sys/devices/system/node")) {
    if (!name.starts_with("node")) continue;
    const auto number = base::ParseInteger<int>(std::string_view(name).substr(4));
    const auto line = root.ReadLine("/sys/devices/system/node/" + name + "/cpulist");
    const auto cpus = line ? ParseCpuList(*line) : std::nullopt;
    if (number && cpus && !cpus->empty()) topology.nodes.push_back({*number, *cpus});
  }
  std::sort(topology.nodes.begin(), topology.nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  if (topology.cpus.empty()) {
    for (const NumaNode& node : topology.nodes) {
      topology.cpus.insert(topology.cpus.end(), node.cpus.begin(), node.cpus.end());
    }
    std::sort(topology.cpus.begin(), topology.cpus.end());
  }
  if (topology.nodes.empty()) topology.nodes.push_back({0, topology.cpus});
  return topology;
}

Card ReadHost(const base::SystemRoot& root) {
  Card host;
  host.vendor = "host";
  host.kind = "cpu";
  host.torch_type = "cpu";
  host.torch_device = "cpu";
  host.collective_backend = "gloo";
  host.sources = {"/proc"};
  const HostTopology topology = ReadTopology(root);
  if (!topology.cpus.empty()) host.local_cpus = FormatCpuList(topology.cpus);
  if (const auto text = root.ReadFile("/proc/cpuinfo")) {
    // x86 has "model name"; ARM kernels print numbers only, and some boards have a "Hardware" line.
    for (const char* name : {"model name", "Hardware", "cpu model"}) {
      if (const auto model = Field(*text, name); model && !host.model) host.model = base::Printable(*model);
    }
  }
  if (const auto text = root.ReadFile("/proc/meminfo")) {
    host.memory_total_bytes = KibibytesField(*text, "MemTotal");
    const auto available = KibibytesField(*text, "MemAvailable");
    if (host.memory_total_bytes && available && *available <= *host.memory_total_bytes) {
      host.telemetry.memory_used_bytes = *host.memory_total_bytes - *available;
    }
  }
  if (const auto line = root.ReadLine("/proc/loadavg")) {
    host.telemetry.state = "load " + base::Printable(base::Split(*line, ' ').front());
  }
  return host;
}

}  // namespace fulldeck::device
