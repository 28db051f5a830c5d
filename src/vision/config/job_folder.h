// The folder of a job, and the names of what lies in it:
//   work_dirs/NAME/config.toml        the file that was given, as it was
//   work_dirs/NAME/recipe.resolved    every setting of the last start; what the ranks read
//   work_dirs/NAME/checkpoints/       step-000001000 …
//   work_dirs/NAME/logs/train.log     what all ranks of the last start said (a link into the folder of that run)
//   work_dirs/NAME/logs/RUN/          a folder for each start, as `fulldeck run` makes it
//   work_dirs/NAME/.lock              held by the one `fulldeck train` that runs here
// The ranks add events, the report and the rest.
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

  // Names of the checkpoints that are there, oldest first: "step-000001000".
  std::vector<std::string> Checkpoints() const;
};

}  // namespace fulldeck::config
