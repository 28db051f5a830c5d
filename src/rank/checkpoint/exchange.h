// What the ranks of a training tell each other about checkpoints, and its form on the way: JSON's data model as CBOR,
// since texts that ranks save may be any bytes. Nothing of it is kept on disk.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fulldeck::checkpoint {

// From each rank, before a save. Only rank 0, which writes, sets what stands below `problem`, but for `rank_texts`.
struct ReadyToSave {
  std::string problem;          // not empty: this rank cannot save, and nothing else counts
  bool started = false;         // false: the writer is still busy, and this save does not take place
  std::string earlier_failure;  // of a save that nobody has reported yet; empty: none
  bool too_many_failures = false;
  std::vector<std::string> rank_texts;  // what this rank alone has, in the order of the state's entries; any bytes
};

// From rank 0, before a load.
struct FoundFolders {
  std::string problem;               // not empty: the directory cannot be read
  std::vector<std::string> folders;  // to be tried in this order
};

std::string ToBytes(const ReadyToSave& message);
std::string ToBytes(const FoundFolders& message);

// An error for anything that ToBytes did not make: a field that is missing or of another type, bytes behind the end.
base::Result<ReadyToSave> ParseReadyToSave(std::string_view bytes);
base::Result<FoundFolders> ParseFoundFolders(std::string_view bytes);

}  // namespace fulldeck::checkpoint
