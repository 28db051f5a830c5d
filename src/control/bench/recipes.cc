#include "bench/recipes.h"

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

// What a launcher or a cluster's manager around us has set would be taken for the bench's own.
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

base::Result<std::string> FindPython(const Kitchen& kitchen) {
  const auto python = kitchen.python.find('/') != std::string::npos
                          ? std::optional<std::string>(kitchen.python)
                          : base::SystemRoot().FindProgram(kitchen.python, kitchen.environment);
  if (!python || access(python->c_str(), X_OK) != 0) {
    return base::Error{
        fmt::format("there is no {}; name a Python that has torch with --python", base::Printable(kitchen.python))};
  }
  return *python;
}

base::Result<std::string> WriteScript(const Kitchen& kitchen, const std::string& name, std::string_view text) {
  const std::string path = kitchen.folder + "/" + name;
  if (auto written = WriteFile(path, text); !written) return written.error();
  return path;
}

std::optional<std::string> PackageBeside(const std::string& own_program) {
  const std::string folder = own_program.substr(0, own_program.rfind('/'));
  const std::string package = folder + "/../lib/python";
  if (access((package + "/fulldeck/__init__.py").c_str(), R_OK) != 0) return std::nullopt;
  return package;
}

base::Result<RankRecipe> FulldeckRecipe(const Kitchen& kitchen, int ranks) {
  RankRecipe recipe{"fulldeck", ranks, {}};
  const base::Environment environment = WithoutLaunchers(kitchen.environment);
  for (int rank = 0; rank < ranks; ++rank) {
    base::SpawnOptions options;
    options.arguments = {kitchen.own_program,
                         "bench-rank",
                         "fulldeck",
                         RankSet::SocketPath(kitchen.folder, recipe),
                         "--rank",
                         std::to_string(rank),
                         "--size",
                         std::to_string(ranks),
                         "--timeout",
                         fmt::format("{}", kitchen.timeout_seconds)};
    options.environment = Strings(environment);
    recipe.processes.push_back(std::move(options));
  }
  return recipe;
}

base::Result<RankRecipe> TorchRecipe(const Kitchen& kitchen, int ranks, const std::string& backend) {
  RankRecipe recipe{backend == "fulldeck" ? "torch" : backend, ranks, {}};
  const auto python = FindPython(kitchen);
  if (!python) return python.error();
  const auto script = WriteScript(kitchen, "collectives_rank.py", kCollectivesRankScript);
  if (!script) return script.error();
  base::Environment environment = base::WithoutWorkingDirectory(WithoutLaunchers(kitchen.environment));
  if (backend == "fulldeck") {
    if (const auto package = PackageBeside(kitchen.own_program)) {
      const auto path = environment.Get("PYTHONPATH");
      environment.Set("PYTHONPATH", path && !path->empty() ? *package + ":" + *path : *package);
    }
  }
  SetIfAbsent(environment, "OMP_NUM_THREADS", "1");
  // All ranks are here; a host name that does not resolve must not matter.
  SetIfAbsent(environment, "GLOO_SOCKET_IFNAME", "lo");
  const std::string store = fmt::format("{}/{}-{}.store", kitchen.folder, recipe.name, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    base::SpawnOptions options;
    options.arguments = {
        *python, *script, RankSet::SocketPath(kitchen.folder, recipe), std::to_string(rank), std::to_string(ranks),
        backend, store,   fmt::format("{}", kitchen.timeout_seconds)};
    options.environment = Strings(environment);
    recipe.processes.push_back(std::move(options));
  }
  return recipe;
}

base::Result<RankRecipe> OpenMpiRecipe(const Kitchen& kitchen, int ranks) {
  RankRecipe recipe{"openmpi", ranks, {}};
  const auto mpirun = base::SystemRoot().FindProgram("mpirun", kitchen.environment);
  if (!mpirun) return base::Error{"there is no mpirun in PATH"};
  base::Environment environment = WithoutLaunchers(kitchen.environment);
  // mpirun insists on one, also for its own host.
  if (!base::SystemRoot().FindProgram("ssh", environment))
    SetIfAbsent(environment, "OMPI_MCA_plm_rsh_agent", "/bin/sh");
  base::SpawnOptions options;
  options.arguments = {*mpirun, "-np", std::to_string(ranks), "--oversubscribe"};
  if (geteuid() == 0) options.arguments.emplace_back("--allow-run-as-root");
  for (const char* word : {kitchen.own_program.c_str(), "bench-rank", "openmpi"}) options.arguments.emplace_back(word);
  options.arguments.push_back(RankSet::SocketPath(kitchen.folder, recipe));
  options.environment = Strings(environment);
  recipe.processes.push_back(std::move(options));
  return recipe;
}

}  // namespace fulldeck::bench
