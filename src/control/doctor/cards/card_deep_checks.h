// The deep half of the group "cards": judges what ProveCards found.
#pragma once

#include <vector>

#include "doctor/check.h"

namespace fulldeck::doctor {

std::vector<Finding> CheckProof(const Subject& subject);
std::vector<Finding> CheckPace(const Subject& subject);
std::vector<Finding> CheckTelemetry(const Subject& subject);
std::vector<Finding> CheckMemoryErrors(const Subject& subject);

}  // namespace fulldeck::doctor
