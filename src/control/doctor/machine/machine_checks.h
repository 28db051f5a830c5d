// The checks of the group "machine", one function each; machine_checks.cc has the table.
#pragma once

#include <vector>

#include "doctor/finding.h"

namespace fulldeck::doctor {

// machine_processors.cc
std::vector<Finding> CheckCores(const Subject& subject);
std::vector<Finding> CheckMemory(const Subject& subject);
std::vector<Finding> CheckLoaderWorkers(const Subject& subject);
std::vector<Finding> CheckClock(const Subject& subject);
std::vector<Finding> CheckHugePages(const Subject& subject);

// machine_limits.cc
std::vector<Finding> CheckOpenFiles(const Subject& subject);
std::vector<Finding> CheckProcesses(const Subject& subject);
std::vector<Finding> CheckLockedMemory(const Subject& subject);
std::vector<Finding> CheckCoreFiles(const Subject& subject);
std::vector<Finding> CheckShm(const Subject& subject);

// machine_leftovers.cc
std::vector<Finding> CheckLeftRuns(const Subject& subject);
std::vector<Finding> CheckLeftFiles(const Subject& subject);
std::vector<Finding> CheckCardHolders(const Subject& subject);

}  // namespace fulldeck::doctor
