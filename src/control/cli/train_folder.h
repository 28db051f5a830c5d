// Prepares the folder of a job (config/job_folder.h) for a start of `fulldeck train`: files of an earlier run are not
// mixed with those of a new one, and only one start at a time can use the folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "config/config.h"
#include "config/job_folder.h"

namespace fulldeck::cli {

enum class Earlier {
  kRefuse,   // reject a folder with checkpoints
  kResume,   // resume from the newest checkpoint; the config must fit
  kSetAside  // rename the whole folder: demo becomes demo.old-1
};

// Checks only, changes nothing. The error includes the fix. `notes`: sentences for the user, for example about
// settings that differ from the last start.
base::Result<void> CheckFolder(const config::Config& config, Earlier earlier, std::vector<std::string>* notes);

// Call after CheckFolder: creates the folder, takes its lock, writes the config and the resolved config, and makes
// logs/train.log a link to the log that the run `run_id` will have. The lock is held as long as the returned
// descriptor is open, in this process or a child of it.
base::Result<base::UniqueFd> PrepareFolder(const config::Config& config, const std::string& config_text,
                                           Earlier earlier, const std::string& run_id, std::vector<std::string>* notes);

}  // namespace fulldeck::cli
