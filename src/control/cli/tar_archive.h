// A tar archive in memory: regular files in the POSIX ustar format, which every tar reads. Not compressed: that would
// need another library, and a mailer or `gzip FILE` can do it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::cli {

struct ArchiveFile {
  // Relative; at most 255 bytes, and its last component at most 100. Longer names are cut at the end.
  std::string name;
  std::string text;
};

// Owner and group are not set, the mode is 0600; `unix_seconds` is the time of all files.
std::string TarArchive(const std::vector<ArchiveFile>& files, std::int64_t unix_seconds);

}  // namespace fulldeck::cli
