// A tar archive in memory: plain files, as every tar reads them (POSIX ustar). Not compressed: gzip and the like are
// one more library for what a mailer or `gzip FILE` does as well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::cli {

struct ArchiveFile {
  std::string name;  // relative; at most 255 bytes, and its last part at most 100: what is longer is cut at the end
  std::string text;
};

// Owner and group are nobody's, the mode 0600; `unix_seconds` is the time of all files.
std::string TarArchive(const std::vector<ArchiveFile>& files, std::int64_t unix_seconds);

}  // namespace fulldeck::cli
