// Are the files and folders that a config names there? Looked at before a rank starts, so that a typo costs a second
// and not the start of eight processes. Folders alone: what lies in the images is for the ranks to see.
//
// Reads the file system, writes nothing. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace fulldeck::config {

// Whole sentences, each with the key, the path, what is there instead (another case, one level deeper or higher, a file
// in place of a folder) and what to do. Empty: all is there.
std::vector<std::string> PathProblems(const Config& config);

// Images of the part that is trained on, by their names alone. Absent: the folders cannot be read, or hold more than
// `most` files.
std::optional<std::uint64_t> CountTrainingSamples(const Config& config, std::uint64_t most = 2'000'000);

}  // namespace fulldeck::config
