// The deep half of the group "cards": judges the results of ProveCards.
#pragma once

#include <vector>

#include "doctor/check.h"

namespace fulldeck::doctor {

std::vector<Finding> CheckProof(const MachineUnderTest& machine);
std::vector<Finding> CheckPace(const MachineUnderTest& machine);
std::vector<Finding> CheckTelemetry(const MachineUnderTest& machine);
std::vector<Finding> CheckMemoryErrors(const MachineUnderTest& machine);

}  // namespace fulldeck::doctor
