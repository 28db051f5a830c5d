// Decides which checkpoints to remove. Pure: touches no file, so every rule is a row of the table in the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fulldeck::checkpoint {

struct RetentionRule {
  std::size_t last = 3;  // number of newest checkpoints to keep; 0 keeps all
  std::size_t best = 0;  // number of best-scoring checkpoints to keep in addition
};

struct KeptCheckpoint {
  enum class Trust {
    kVerified,  // read completely by this process, and valid
    kUnknown,   // from an earlier run, not read
    kBad        // read and found damaged
  };
  std::uint64_t step = 0;
  std::optional<double> score;
  Trust trust = Trust::kUnknown;
};

// Steps to remove. Never removes the newest verified checkpoint, and removes nothing while none is verified:
// checkpoints that were not read do not count. Bad ones do not count towards `last` and `best`; they are removed once
// they are older than all that stay, not earlier, because a disk that is unreadable today may be readable tomorrow.
std::vector<std::uint64_t> StepsToRemove(std::vector<KeptCheckpoint> checkpoints, const RetentionRule& rule);

}  // namespace fulldeck::checkpoint
