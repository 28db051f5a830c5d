// Folders of data sets: what is in them, in an order that does not depend on the file system, and what to say when they
// are not where they were looked for.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace fulldeck::dataset {

// PNG, JPEG and TIFF, in small or large letters.
bool HasImageSuffix(const std::string& name);

bool IsFolder(const std::string& path);

// The names of the folders in a folder, sorted by their bytes; hidden ones are left out.
std::vector<std::string> FoldersIn(const std::string& folder);

// An error when `root`/`below` is no folder. It says how far the path goes, what is there instead, and where something
// of that name lies: in other letters, one level deeper or one level higher. `below` may be of several levels, and
// empty.
base::Result<void> ExpectFolder(const std::string& root, const std::string& below);

// Paths relative to the folder, of all files below it that end with `suffix` (empty: any image), sorted by their bytes.
// Hidden files are left out. None is an error that says which suffixes there are.
base::Result<std::vector<std::string>> FilesBelow(const std::string& folder, const std::string& suffix);

// "a, b, c and 4 more".
std::string FewOf(const std::vector<std::string>& names);

}  // namespace fulldeck::dataset
