// The checks of the group "machine", one function each; machine_checks.cc has the table.
#pragma once

#include <vector>

#include "doctor/finding.h"

namespace fulldeck::doctor {

// machine_cpus.cc
std::vector<Finding> CheckCores(const MachineUnderTest& machine);
std::vector<Finding> CheckMemory(const MachineUnderTest& machine);
std::vector<Finding> CheckLoaderWorkers(const MachineUnderTest& machine);
std::vector<Finding> CheckClock(const MachineUnderTest& machine);
std::vector<Finding> CheckHugePages(const MachineUnderTest& machine);

// machine_limits.cc
std::vector<Finding> CheckOpenFiles(const MachineUnderTest& machine);
std::vector<Finding> CheckProcesses(const MachineUnderTest& machine);
std::vector<Finding> CheckLockedMemory(const MachineUnderTest& machine);
std::vector<Finding> CheckCoreFiles(const MachineUnderTest& machine);
std::vector<Finding> CheckShm(const MachineUnderTest& machine);

// machine_leftovers.cc
std::vector<Finding> CheckLeftRuns(const MachineUnderTest& machine);
std::vector<Finding> CheckLeftFiles(const MachineUnderTest& machine);
std::vector<Finding> CheckCardHolders(const MachineUnderTest& machine);

}  // namespace fulldeck::doctor
