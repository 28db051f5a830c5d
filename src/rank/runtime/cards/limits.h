// Limits and settings of a rank's process: set, and read back, because a setting that did not take is worse than none.
#pragma once

#include <optional>
#include <string>

namespace fulldeck::runtime {

struct LimitsRequest {
  int open_files = 4096;                // the soft limit is raised to this; never lowered
  std::optional<int> threads;           // of ATen's operators; absent: the rank's share of the processors
  int ranks_here = 1;                   // that share them
  std::optional<bool> cudnn_benchmark;  // absent: torch's default stays
};

struct Limits {
  std::uint64_t open_files = 0;       // as the kernel says afterwards
  std::uint64_t most_open_files = 0;  // the hard limit
  int threads = 0;                    // as ATen says afterwards
  bool cudnn_benchmark = false;       // as torch says afterwards

  // "open files 4096, threads 2, cudnn_benchmark off"
  std::string ToText() const;
};

// What could not be set as asked is told in one warning each on stderr.
Limits SetLimits(const LimitsRequest& request);

}  // namespace fulldeck::runtime
