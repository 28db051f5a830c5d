// Limits and settings of a rank's process. Each is read back after it was set, so that a setting without effect is
// noticed.
#pragma once

#include <optional>
#include <string>

namespace fulldeck::runtime {

struct LimitsRequest {
  int open_files = 4096;                // the soft limit is raised to this; never lowered
  std::optional<int> threads;           // of ATen's operators; absent: the rank's share of the CPU cores
  int ranks_here = 1;                   // that share the cores
  std::optional<bool> cudnn_benchmark;  // absent: torch's default stays
};

struct Limits {
  std::uint64_t open_files = 0;       // as the kernel reports it afterwards
  std::uint64_t most_open_files = 0;  // the hard limit
  int threads = 0;                    // as ATen reports it afterwards
  bool cudnn_benchmark = false;       // as torch reports it afterwards

  // "open files 4096, threads 2, cudnn_benchmark off"
  std::string ToText() const;
};

// Prints one warning on stderr for each setting that did not take effect.
Limits SetLimits(const LimitsRequest& request);

}  // namespace fulldeck::runtime
