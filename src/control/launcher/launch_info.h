// launch.json in the run directory: how the run was started, so that it can be understood when it is over (fulldeck
// bundle puts it into the archive). Secrets are taken out before it is written (job/redaction/redaction.h);
// docs/bundle.md describes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "job/redaction/redaction.h"
#include "job/runs/run_registry.h"

namespace fulldeck::launcher {

inline constexpr char kLaunchInfo[] = "launch.json";

// The arguments of this process, which is the launcher.
std::vector<std::string> LauncherArguments();

// {"version", "arguments", "environment", "run": the record, "secrets": marks by which they are known again}.
// `environment` is the caller's.
std::string FormatLaunchInfo(const std::vector<std::string>& arguments, const base::Environment& environment,
                             const job::RunRecord& record);

// The marks of the environment's secrets in such a document, and the document without them. Text from outside.
job::SecretMarks MarksOfLaunchInfo(std::string_view text);
std::string WithoutMarks(std::string_view text);

// The run id of a run of several nodes, by which its nodes know each other unless FULLDECK_TOKEN was set; empty where
// it is none that a user chose.
std::string RendezvousTokenOf(std::string_view text);

// Replaces what an earlier attempt wrote. Mode 0600.
base::Result<void> WriteLaunchInfo(const base::Environment& environment, const job::RunRecord& record);

}  // namespace fulldeck::launcher
