// Reads files in a folder that another user may have filled: a support bundle that root makes of another user's run
// must not contain root's files because a symbolic link in the run folder points to them.
#pragma once

#include <string>
#include <string_view>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::base {

// Opens FOLDER/relative for reading. No component of `relative` may be a symbolic link or "..", and the file must be a
// regular file that belongs to the owner of FOLDER (a hard link to another user's file does not). Opening never blocks.
// FOLDER itself is not checked. If the file does not exist, system_error is ENOENT or ENOTDIR.
Result<UniqueFd> OpenBeneath(const std::string& folder, std::string_view relative);

}  // namespace fulldeck::base
