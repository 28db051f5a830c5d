// Whole files, read and written.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace fulldeck::imagery {

// A regular file of at most 4 GiB; the error names it.
base::Result<std::string> ReadWholeFile(const std::string& path);
// Beside it first, then synced and renamed: a reader sees the old file, or the new one, or none.
base::Result<void> WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace fulldeck::imagery
