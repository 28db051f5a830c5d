// Checks that the files and folders that a config names exist. Runs before any rank starts, so that a typo costs a
// second instead of the start of eight processes. Checks folders only: the ranks check the images in them.
//
// Reads the file system and never writes to it. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace fulldeck::config {

// One sentence per problem, each with the key, the path, what exists instead (different case, one level deeper or
// higher, a file instead of a folder) and the fix. Empty: everything exists.
std::vector<std::string> PathProblems(const Config& config);

// Images of the training split, counted by name only. Absent: the folders cannot be read, or hold more than `most`
// files.
std::optional<std::uint64_t> CountTrainingSamples(const Config& config, std::uint64_t most = 2'000'000);

}  // namespace fulldeck::config
