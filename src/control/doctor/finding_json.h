// Findings as bytes, between a check's process and the doctor's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "doctor/check.h"

namespace fulldeck::doctor {

std::string FormatFindings(const std::vector<Finding>& findings);
// What a dying process wrote may be cut short: an error then.
base::Result<std::vector<Finding>> ParseFindings(std::string_view text);

}  // namespace fulldeck::doctor
