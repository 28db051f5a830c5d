// The checks of the group "network", one function each; network_checks.cc has the table.
#pragma once

#include <vector>

#include "doctor/finding.h"

namespace fulldeck::doctor {

// network_interfaces.cc
std::vector<Finding> CheckLoopback(const MachineUnderTest& machine);
std::vector<Finding> CheckInterface(const MachineUnderTest& machine);
std::vector<Finding> CheckInterfaceVariables(const MachineUnderTest& machine);
std::vector<Finding> CheckHostName(const MachineUnderTest& machine);
std::vector<Finding> CheckMasterPort(const MachineUnderTest& machine);

// network_links.cc
std::vector<Finding> CheckCardLinks(const MachineUnderTest& machine);
std::vector<Finding> CheckPeerToPeer(const MachineUnderTest& machine);

// network_peers.cc
std::vector<Finding> CheckPeerReach(const MachineUnderTest& machine);
std::vector<Finding> CheckPeerMtu(const MachineUnderTest& machine);
std::vector<Finding> CheckPeerBandwidth(const MachineUnderTest& machine);

}  // namespace fulldeck::doctor
