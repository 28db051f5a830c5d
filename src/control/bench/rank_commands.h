// How the ranks of each library are started.
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

// What a command needs to know of this machine and this run.
struct RankLauncherConfig {
  base::Environment environment;
  std::string folder;           // of this run, for sockets, scripts and what ranks print
  std::string executable_path;  // this fulldeck: ranks are `bench-rank …` of it
  std::string python;           // as the user named it: a path, or a name to be found in PATH
  double timeout_seconds = 60;  // of one call
};

// fulldeck's own engine through the C interface.
base::Result<RankCommand> FulldeckCommand(const RankLauncherConfig& launcher_config, int ranks);
// torch.distributed in Python, with "gloo" or with "fulldeck". The error says why it cannot be tried.
base::Result<RankCommand> TorchCommand(const RankLauncherConfig& launcher_config, int ranks,
                                       const std::string& backend);
// This program under mpirun, with libmpi loaded at run time. The error says why it cannot be tried.
base::Result<RankCommand> OpenMpiCommand(const RankLauncherConfig& launcher_config, int ranks);

// The environment of a rank: without what a launcher or a cluster's manager around this process has set. "NAME=value".
std::vector<std::string> VariablesOfRanks(const base::Environment& environment);
// The Python that the user named, as a path. The error says what to do.
base::Result<std::string> FindPython(const RankLauncherConfig& launcher_config);
// Into the folder of this run, where the path is returned.
base::Result<std::string> WriteScript(const RankLauncherConfig& launcher_config, const std::string& name,
                                      std::string_view text);

// Where the package that was built with this program lies, for Python's path; nothing when there is none.
std::optional<std::string> PackageBeside(const std::string& executable_path);

}  // namespace fulldeck::bench
