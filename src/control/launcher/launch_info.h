// launch.json in the run folder: how the run was started, so that a finished run can be analyzed (fulldeck bundle adds
// it to the archive). Secrets are removed before it is written (job/redaction/redaction.h). Format: docs/bundle.md.
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

// The arguments of this process (the launcher).
std::vector<std::string> LauncherArguments();

// {"version", "arguments", "environment", "run": the record, "secrets": marks that identify the secrets}. `environment`
// is the caller's environment.
std::string FormatLaunchInfo(const std::vector<std::string>& arguments, const base::Environment& environment,
                             const job::RunRecord& record);

// The marks of the environment's secrets in such a document, and the document without them. The text is untrusted.
job::SecretMarks MarksOfLaunchInfo(std::string_view text);
std::string WithoutMarks(std::string_view text);

// The run id of a multi-node run, which its nodes use as the rendezvous token unless FULLDECK_TOKEN was set. Empty if
// the run id was generated rather than chosen by the user.
std::string RendezvousTokenOf(std::string_view text);

// Replaces the file of an earlier attempt. Mode 0600.
base::Result<void> WriteLaunchInfo(const base::Environment& environment, const job::RunRecord& record);

}  // namespace fulldeck::launcher
