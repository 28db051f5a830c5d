// Builds the commands that start the ranks of each library.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/files/system_root.h"
#include "base/result.h"
#include "bench/rank_set.h"

namespace fulldeck::bench {

// Facts about this machine and this run that the commands need.
struct RankLauncherConfig {
  base::Environment environment;
  std::string folder;           // of this run, for sockets, scripts and output of ranks
  std::string executable_path;  // the fulldeck binary: ranks run its `bench-rank …`
  std::string python;           // as the user gave it: a path, or a name to search in PATH
  double timeout_seconds = 60;  // per call
};

// fulldeck's own engine through the C interface.
base::Result<RankCommand> FulldeckCommand(const RankLauncherConfig& launcher_config, int ranks);
// torch.distributed in Python with the backend "gloo" or "fulldeck". The error says why it is not available.
base::Result<RankCommand> TorchCommand(const RankLauncherConfig& launcher_config, int ranks,
                                       const std::string& backend);
// This program under mpirun; libmpi is loaded at run time. The error says why it is not available.
base::Result<RankCommand> OpenMpiCommand(const RankLauncherConfig& launcher_config, int ranks);

// The environment of a rank, "NAME=value": without variables that a launcher or scheduler has set for this process.
std::vector<std::string> VariablesOfRanks(const base::Environment& environment);
// The path of the Python that the user named. The error says what to do.
base::Result<std::string> FindPython(const RankLauncherConfig& launcher_config);
// Writes a script to the run's folder and returns its path.
base::Result<std::string> WriteScript(const RankLauncherConfig& launcher_config, const std::string& name,
                                      std::string_view text);

// The folder of the Python package that was built with this program, for PYTHONPATH; nullopt if there is none.
std::optional<std::string> PackageBeside(const std::string& executable_path);

}  // namespace fulldeck::bench
