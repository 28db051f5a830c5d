// Writing to files so that a reader never sees half of one. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace fulldeck::report {

// All of the bytes to an open file; `path` is for the message.
base::Result<void> WriteAllTo(int fd, std::string_view bytes, const std::string& path);

// A whole file: written beside, synced, and renamed over what was there.
base::Result<void> ReplaceFile(const std::string& path, std::string_view bytes);

}  // namespace fulldeck::report
