// The results of the doctor, as text and as JSON, and the table of docs/doctor.md.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "doctor/check.h"
#include "doctor/run_checks.h"

namespace fulldeck::cli {

struct DoctorReportOptions {
  bool colors = false;
  bool chinese = false;
  base::Duration took{};
};

// One line per finding, by group, with the fix below those that are not ok, and a summary at the end.
std::string DoctorText(const std::vector<doctor::CheckReport>& reports, const DoctorReportOptions& options);

// One JSON object; docs/doctor.md describes it.
std::string DoctorJson(const std::vector<doctor::CheckReport>& reports, const doctor::MachineUnderTest& machine,
                       const DoctorReportOptions& options);

// A Markdown table: every check, what it does and what it proves.
std::string ChecksTable(std::span<const doctor::Check> checks, bool chinese);

}  // namespace fulldeck::cli
