// Whole-file I/O: reads up to a limit; writes so that a reader never sees half a file. Also reads a range of a file.
// Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fulldeck::base {

// Errors name the file. A file larger than `most` bytes is an error.
Result<std::string> ReadWholeFile(const std::string& path, std::size_t most);

// Reads `bytes` bytes of an open file from offset `begin`; fewer at the end of the file or on an error.
std::string ReadRange(int fd, std::uint64_t begin, std::size_t bytes);

// Writes all bytes to an open file; `path` is only used in the message.
Result<void> WriteAllTo(int fd, std::string_view bytes, const std::string& path);

// Writes a new file in the same folder, syncs it, renames it to `path`, and syncs the folder: a reader sees the old
// file, the new one, or none, also after a power failure. If this fails, the partial file is removed.
Result<void> ReplaceFile(const std::string& path, std::string_view bytes);

}  // namespace fulldeck::base
