// Serializes findings between a check's process and the doctor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "doctor/check.h"

namespace fulldeck::doctor {

std::string FormatFindings(const std::vector<Finding>& findings);
// Returns an error if the text is truncated, as from a process that died.
base::Result<std::vector<Finding>> ParseFindings(std::string_view text);

}  // namespace fulldeck::doctor
