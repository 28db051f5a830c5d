#include "doctor/machine/proc_status.h"

#include "base/text.h"
#include "device/host.h"

namespace fulldeck::doctor {

std::optional<std::string> StatusField(const base::SystemRoot& root, std::string_view name) {
  const auto text = root.ReadFile("/proc/self/status", 1 << 16);
  if (!text) return std::nullopt;
  for (const std::string_view line : base::Split(*text, '\n')) {
    if (!line.starts_with(name) || !line.substr(name.size()).starts_with(':')) continue;
    return std::string(base::Trim(line.substr(name.size() + 1)));
  }
  return std::nullopt;
}

std::optional<bool> HasCapability(const base::SystemRoot& root, int number) {
  const auto field = StatusField(root, "CapEff");
  const auto bits = field ? base::ParseInteger<std::uint64_t>(*field, 16) : std::nullopt;
  if (!bits) return std::nullopt;
  return ((*bits >> number) & 1) != 0;
}

std::optional<ResourceLimit> ReadLimit(const base::SystemRoot& root, std::string_view name) {
  const auto text = root.ReadFile("/proc/self/limits", 1 << 16);
  if (!text) return std::nullopt;
  const auto number = [](std::string_view word) -> std::optional<std::uint64_t> {
    if (word == "unlimited") return ResourceLimit::kUnlimited;
    return base::ParseInteger<std::uint64_t>(word);
  };
  for (const std::string_view line : base::Split(*text, '\n')) {
    if (!line.starts_with(name)) continue;
    std::vector<std::string_view> words;
    for (const std::string_view word : base::Split(line.substr(name.size()), ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    if (words.size() < 2) return std::nullopt;
    const auto soft = number(words[0]);
    const auto hard = number(words[1]);
    if (!soft || !hard) return std::nullopt;
    return ResourceLimit{*soft, *hard};
  }
  return std::nullopt;
}

std::string FormatLimit(std::uint64_t limit) {
  return limit == ResourceLimit::kUnlimited ? "unlimited" : std::to_string(limit);
}

std::optional<int> CountAllowedCpus(const base::SystemRoot& root) {
  const auto field = StatusField(root, "Cpus_allowed_list");
  const auto list = field ? device::ParseCpuList(*field) : std::nullopt;
  if (!list || list->empty()) return std::nullopt;
  return static_cast<int>(list->size());
}

}  // namespace fulldeck::doctor
