// Reading files in a folder that another user may have filled: a support bundle that root makes of somebody's run must
// not hold root's files because a symbolic link in the run folder leads to them.
#pragma once

#include <string>
#include <string_view>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::base {

// Opens FOLDER/relative for reading. No part of `relative` may be a symbolic link or "..", and the file must be a plain
// one that belongs to the owner of FOLDER (a hard link to a file of somebody else does not). The descriptor never
// blocks. FOLDER itself is taken as it is named. The error has ENOENT or ENOTDIR when there is no such file.
Result<UniqueFd> OpenBeneath(const std::string& folder, std::string_view relative);

}  // namespace fulldeck::base
