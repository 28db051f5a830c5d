// The checks of the group "container", one function each; container_checks.cc has the table. They also apply outside
// containers: the same things can be missing there.
#pragma once

#include <vector>

#include "doctor/finding.h"

namespace fulldeck::doctor {

// container_vendors.cc
std::vector<Finding> CheckDeviceNodes(const MachineUnderTest& machine);
std::vector<Finding> CheckVendorLibraries(const MachineUnderTest& machine);
std::vector<Finding> CheckVendorTool(const MachineUnderTest& machine);

// container_kernel.cc
std::vector<Finding> CheckContainerInit(const MachineUnderTest& machine);
std::vector<Finding> CheckShmSize(const MachineUnderTest& machine);
std::vector<Finding> CheckFacilities(const MachineUnderTest& machine);
std::vector<Finding> CheckCapabilities(const MachineUnderTest& machine);

// "Docker", "Kubernetes", …, from /.dockerenv, /run/.containerenv, cgroup and mounts; nullopt outside a container.
std::optional<std::string> FindContainer(const base::SystemRoot& root);

}  // namespace fulldeck::doctor
