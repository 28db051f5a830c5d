#include "bench/rank_commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/whole_file.h"
#include "base/python_start.h"
#include "base/text.h"
#include "bench/collectives_rank_script.h"

namespace fulldeck::bench {
namespace {

std::vector<std::string> Strings(const base::Environment& environment) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : environment.all()) strings.push_back(name + "=" + value);
  return strings;
}

// Removes variables of an outer launcher or scheduler, which would affect the bench's own ranks.
base::Environment WithoutLaunchers(base::Environment environment) {
  std::vector<std::string> foreign;
  for (const auto& [name, value] : environment.all()) {
    for (const char* prefix : {"OMPI_COMM_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_"}) {
      if (name.starts_with(prefix)) foreign.push_back(name);
    }
    for (const char* variable : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                 "FULLDECK_BOARD_FD", "FULLDECK_BOARD_SLOT"}) {
      if (name == variable) foreign.push_back(name);
    }
  }
  for (const std::string& name : foreign) environment.Remove(name);
  return environment;
}

void SetIfAbsent(base::Environment& environment, const char* name, const char* value) {
  if (!environment.Get(name)) environment.Set(name, value);
}

base::Result<void> WriteFile(const std::string& path, std::string_view text) {
  const base::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return base::ErrnoError("cannot write " + base::Printable(path));
  return base::WriteAllTo(file.get(), text, path);
}

}  // namespace

std::vector<std::string> VariablesOfRanks(const base::Environment& environment) {
  return Strings(WithoutLaunchers(environment));
}

base::Result<std::string> FindPython(const RankLauncherConfig& launcher_config) {
  const auto python = launcher_config.python.find('/') != std::string::npos
                          ? std::optional<std::string>(launcher_config.python)
                          : base::SystemRoot().FindProgram(launcher_config.python, launcher_config.environment);
  if (!python || access(python->c_str(), X_OK) != 0) {
    return base::Error{fmt::format("there is no {}; name a Python that has torch with --python",
                                   base::Printable(launcher_config.python))};
  }
  return *python;
}

base::Result<std::string> WriteScript(const RankLauncherConfig& launcher_config, const std::string& name,
                                      std::string_view text) {
  const std::string path = launcher_config.folder + "/" + name;
  if (auto written = WriteFile(path, text); !written) return written.error();
  return path;
}

std::optional<std::string> PackageBeside(const std::string& executable_path) {
  const std::string folder = executable_path.substr(0, executable_path.rfind('/'));
  const std::string package = folder + "/../lib/python";
  if (access((package + "/fulldeck/__init__.py").c_str(), R_OK) != 0) return std::nullopt;
  return package;
}

base::Result<RankCommand> FulldeckCommand(const RankLauncherConfig& launcher_config, int ranks) {
  RankCommand command{"fulldeck", ranks, {}};
  const base::Environment environment = WithoutLaunchers(launcher_config.environment);
  for (int rank = 0; rank < ranks; ++rank) {
    base::SpawnOptions options;
    options.arguments = {launcher_config.executable_path,
                         "bench-rank",
                         "fulldeck",
                         RankSet::SocketPath(launcher_config.folder, command),
                         "--rank",
                         std::to_string(rank),
                         "--size",
                         std::to_string(ranks),
                         "--timeout",
                         fmt::format("{}", launcher_config.timeout_seconds)};
    options.environment = Strings(environment);
    command.processes.push_back(std::move(options));
  }
  return command;
}

base::Result<RankCommand> TorchCommand(const RankLauncherConfig& launcher_config, int ranks,
                                       const std::string& backend) {
  RankCommand command{backend == "fulldeck" ? "torch" : backend, ranks, {}};
  const auto python = FindPython(launcher_config);
  if (!python) return python.error();
  const auto script = WriteScript(launcher_config, "collectives_rank.py", kCollectivesRankScript);
  if (!script) return script.error();
  base::Environment environment = base::WithoutWorkingDirectory(WithoutLaunchers(launcher_config.environment));
  if (backend == "fulldeck") {
    if (const auto package = PackageBeside(launcher_config.executable_path)) {
      const auto path = environment.Get("PYTHONPATH");
      environment.Set("PYTHONPATH", path && !path->empty() ? *package + ":" + *path : *package);
    }
  }
  SetIfAbsent(environment, "OMP_NUM_THREADS", "1");
  // All ranks are on this node; a host name that does not resolve must not matter.
  SetIfAbsent(environment, "GLOO_SOCKET_IFNAME", "lo");
  const std::string store = fmt::format("{}/{}-{}.store", launcher_config.folder, command.name, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    base::SpawnOptions options;
    options.arguments = {*python,
                         *script,
                         RankSet::SocketPath(launcher_config.folder, command),
                         std::to_string(rank),
                         std::to_string(ranks),
                         backend,
                         store,
                         fmt::format("{}", launcher_config.timeout_seconds)};
    options.environment = Strings(environment);
    command.processes.push_back(std::move(options));
  }
  return command;
}

base::Result<RankCommand> OpenMpiCommand(const RankLauncherConfig& launcher_config, int ranks) {
  RankCommand command{"openmpi", ranks, {}};
  const auto mpirun = base::SystemRoot().FindProgram("mpirun", launcher_config.environment);
  if (!mpirun) return base::Error{"there is no mpirun in PATH"};
  base::Environment environment = WithoutLaunchers(launcher_config.environment);
  // mpirun requires one even for its own host.
  if (!base::SystemRoot().FindProgram("ssh", environment))
    SetIfAbsent(environment, "OMPI_MCA_plm_rsh_agent", "/bin/sh");
  base::SpawnOptions options;
  options.arguments = {*mpirun, "-np", std::to_string(ranks), "--oversubscribe"};
  if (geteuid() == 0) options.arguments.emplace_back("--allow-run-as-root");
  for (const char* word : {launcher_config.executable_path.c_str(), "bench-rank", "openmpi"})
    options.arguments.emplace_back(word);
  options.arguments.push_back(RankSet::SocketPath(launcher_config.folder, command));
  options.environment = Strings(environment);
  command.processes.push_back(std::move(options));
  return command;
}

}  // namespace fulldeck::bench
