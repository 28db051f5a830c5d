// The location of a run's logs, also after the run has ended:
//   RUN-DIRECTORY/logs/train.log                                    output of all ranks of this node, merged
//   RUN-DIRECTORY/attempt_N/LOCAL-RANK/stdout.log and stderr.log    of one rank
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "job/runs/run_registry.h"

namespace fulldeck::job {

inline constexpr char kRunsFolder[] = "fulldeck_runs";  // below the working directory: the default location of runs

struct RunLogs {
  std::string name;  // run id, or the folder's name
  std::string directory;
  std::optional<RunRegistry::Entry> entry;  // of a run that the registry knows
};

// `which`: a run id or the beginning of one (running, or ended below `working_directory`/fulldeck_runs), a run
// directory, or the folder of a job of `fulldeck train`, which has the logs of its last run. Empty: the only run that
// is running, otherwise the newest below fulldeck_runs. The error lists the searched locations.
base::Result<RunLogs> FindRunLogs(const RunRegistry& registry, std::string_view which,
                                  const std::string& working_directory);

struct LogChoice {
  std::optional<int> rank;  // in the whole run; absent: the merged log
  bool standard_output = true;
  bool standard_error = true;
};

// The highest N for which attempt_N exists.
std::optional<int> LatestAttempt(const std::string& run_directory);

// The files, whether or not they exist yet. Fails for a rank that this run does not have on this node.
base::Result<std::vector<std::string>> LogFiles(const RunLogs& logs, const LogChoice& choice);

// Every folder in which a file that LogFiles would name can appear or grow, outer folders first: the folders to
// watch.
std::vector<std::string> LogFolders(const RunLogs& logs, const std::vector<std::string>& files);

}  // namespace fulldeck::job
