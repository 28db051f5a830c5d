// The folder of a job (config/job_folder.h) made ready for a start of `fulldeck train`: nothing of an earlier run is
// mixed with a new one, and one start at a time has it.
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
  kRefuse,   // a folder with checkpoints is refused
  kResume,   // goes on from the newest one; the config must fit
  kSetAside  // the whole folder is renamed: demo becomes demo.old-1
};

// Looks and changes nothing. The error says what to do. `notes`: sentences for the person, such as settings that are
// not those of the last start.
base::Result<void> CheckFolder(const config::Config& config, Earlier earlier, std::vector<std::string>* notes);

// After CheckFolder: makes the folder, takes its lock, writes the config and the resolved config, and lets
// logs/train.log point to the log that the run `run_id` will have. The lock lasts as long as what is returned, in this
// process or a child of it.
base::Result<base::UniqueFd> PrepareFolder(const config::Config& config, const std::string& config_text,
                                           Earlier earlier, const std::string& run_id, std::vector<std::string>* notes);

}  // namespace fulldeck::cli
