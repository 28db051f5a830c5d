// Dataset folders: lists their content in an order that does not depend on the file system, and explains what exists
// instead of a missing folder. Knows no dataset layout.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace fulldeck::dataset {

// PNG, JPEG and TIFF, in lower or upper case.
bool HasImageSuffix(const std::string& name);

bool IsFolder(const std::string& path);

// The names of the folders in a folder, without hidden ones, sorted by byte value.
std::vector<std::string> FoldersIn(const std::string& folder);

// An error if `root`/`below` is not a folder. It reports how far the path exists, what exists instead, and where a
// similar name is: in a different case, one level deeper or one level higher. `below` may have several levels, or be
// empty.
base::Result<void> ExpectFolder(const std::string& root, const std::string& below);

// Paths relative to the folder of all files below it that end with `suffix` (empty: any image), without hidden files,
// sorted by byte value. No file is an error that lists the existing suffixes.
base::Result<std::vector<std::string>> FilesBelow(const std::string& folder, const std::string& suffix);

// "a, b, c and 4 more".
std::string FewOf(const std::vector<std::string>& names);

}  // namespace fulldeck::dataset
