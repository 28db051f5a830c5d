// The folder of a job and the names of its files:
//   work_dirs/NAME/config.toml        the config file, unchanged
//   work_dirs/NAME/recipe.resolved    every setting of the last start; read by the ranks
//   work_dirs/NAME/checkpoints/       step-000001000 …
//   work_dirs/NAME/logs/train.log     output of all ranks of the last start (a link into the folder of that run)
//   work_dirs/NAME/logs/RUN/          one run folder per start, as `fulldeck run` creates it
//   work_dirs/NAME/.lock              held by the `fulldeck train` that uses the folder
// The ranks add events, the report and other files.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace fulldeck::config {

struct JobFolder {
  explicit JobFolder(const Config& config) : path(config.work_dirs + "/" + config.name) {}

  std::string path;
  std::string config() const { return path + "/config.toml"; }
  std::string resolved() const { return path + "/recipe.resolved"; }
  std::string checkpoints() const { return path + "/checkpoints"; }
  std::string logs() const { return path + "/logs"; }
  std::string merged_log() const { return path + "/logs/train.log"; }
  std::string lock() const { return path + "/.lock"; }

  // Names of the existing checkpoints, oldest first: "step-000001000".
  std::vector<std::string> Checkpoints() const;
};

}  // namespace fulldeck::config
