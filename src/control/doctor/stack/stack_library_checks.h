// The second half of the group "stack": files. Invalid shared libraries, hand-written stub modules, modified packages.
#pragma once

#include <vector>

#include "doctor/check.h"

namespace fulldeck::doctor {

std::vector<Finding> CheckCollectiveLibrary(const MachineUnderTest& machine);
std::vector<Finding> CheckStubLibraries(const MachineUnderTest& machine);
std::vector<Finding> CheckHandMadeModules(const MachineUnderTest& machine);
std::vector<Finding> CheckEditedPackages(const MachineUnderTest& machine);
std::vector<Finding> CheckLibraryPath(const MachineUnderTest& machine);

// What a file that should be a shared library is.
enum class LibraryFile { kSound, kLinkerScript, kNotElf, kCutShort, kEmpty, kForeign, kAbsent };
// Reads the ELF header and compares its tables with the file's length. `path` is opened unchanged.
LibraryFile ClassifyLibrary(const std::string& path);

}  // namespace fulldeck::doctor
