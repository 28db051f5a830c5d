// Decides which checkpoints may go. Pure: touches no file, so every rule is a row of the table in the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fulldeck::checkpoint {

struct RetentionRule {
  std::size_t last = 3;  // this many of the newest; 0 keeps all
  std::size_t best = 0;  // and this many of the highest scores
};

struct KeptCheckpoint {
  enum class Trust {
    kVerified,  // read in whole by this process, and good
    kUnknown,   // of an earlier run, not read
    kBad        // read and found damaged
  };
  std::uint64_t step = 0;
  std::optional<double> score;
  Trust trust = Trust::kUnknown;
};

// Steps to remove. Never the newest verified one, and nothing at all while none is verified: what was not read counts
// for nothing. A bad one takes no place among the last or the best; it goes when it is older than all that stay, not
// before, because a disk that cannot be read today may be read tomorrow.
std::vector<std::uint64_t> StepsToRemove(std::vector<KeptCheckpoint> checkpoints, const RetentionRule& rule);

}  // namespace fulldeck::checkpoint
