// Facts from /proc about this process: limits, capabilities, CPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/system_root.h"

namespace fulldeck::doctor {

// The value of a line "Name:\tvalue" of /proc/self/status.
std::optional<std::string> StatusField(const base::SystemRoot& root, std::string_view name);

// The kernel's capability numbers.
inline constexpr int kCapabilityIpcLock = 14;
inline constexpr int kCapabilityPtrace = 19;
inline constexpr int kCapabilityAdmin = 21;
inline constexpr int kCapabilityNice = 23;
inline constexpr int kCapabilityResource = 24;
// nullopt if it cannot be read.
std::optional<bool> HasCapability(const base::SystemRoot& root, int number);

// A line of /proc/self/limits: "Max open files".
struct ResourceLimit {
  static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};
std::optional<ResourceLimit> ReadLimit(const base::SystemRoot& root, std::string_view name);
// "unlimited" or the number.
std::string FormatLimit(std::uint64_t limit);

// Number of CPUs that this process may run on; nullopt if it cannot be read.
std::optional<int> CountAllowedCpus(const base::SystemRoot& root);

}  // namespace fulldeck::doctor
