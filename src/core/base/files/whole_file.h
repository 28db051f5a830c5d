// Files as a whole: read up to a limit, written so that a reader never sees half of one; and a part of one. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fulldeck::base {

// An error names the file; so does one that is larger than `most` bytes.
Result<std::string> ReadWholeFile(const std::string& path, std::size_t most);

// So many bytes of an open file from `begin` on; fewer where it ends before or cannot be read.
std::string ReadRange(int fd, std::uint64_t begin, std::size_t bytes);

// All of the bytes to an open file; `path` is for the message.
Result<void> WriteAllTo(int fd, std::string_view bytes, const std::string& path);

// Written to a new file in the same folder, synced, renamed over what was there, and the folder synced: a reader sees
// the old file, or the new one, or none, also after a power failure. What was written of one that failed is removed.
Result<void> ReplaceFile(const std::string& path, std::string_view bytes);

}  // namespace fulldeck::base
