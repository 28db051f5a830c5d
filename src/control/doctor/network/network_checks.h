// The checks of the group "network", one function each; network_checks.cc has the table.
#pragma once

#include <vector>

#include "doctor/finding.h"

namespace fulldeck::doctor {

// network_interfaces.cc
std::vector<Finding> CheckLoopback(const Subject& subject);
std::vector<Finding> CheckInterface(const Subject& subject);
std::vector<Finding> CheckInterfaceVariables(const Subject& subject);
std::vector<Finding> CheckHostName(const Subject& subject);
std::vector<Finding> CheckMasterPort(const Subject& subject);

// network_links.cc
std::vector<Finding> CheckCardLinks(const Subject& subject);
std::vector<Finding> CheckPeerToPeer(const Subject& subject);

// network_peers.cc
std::vector<Finding> CheckPeerReach(const Subject& subject);
std::vector<Finding> CheckPeerMtu(const Subject& subject);
std::vector<Finding> CheckPeerBandwidth(const Subject& subject);

}  // namespace fulldeck::doctor
