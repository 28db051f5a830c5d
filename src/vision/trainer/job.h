// The training job from its config to its report, as one rank runs it. docs/train.md describes the order of events.
#pragma once

#include "config/config.h"

namespace fulldeck::trainer {

struct JobOptions {
  // Resume from the newest checkpoint of the job folder. A rank that the launcher restarted resumes even if this is
  // false.
  bool resume = false;
};

// Trains to the end (or until a signal asks it to stop) and returns the exit code. A failure is reported and ends the
// process. Throws only what the session throws during rendezvous.
int RunJob(const config::Config& config, const JobOptions& options);

}  // namespace fulldeck::trainer
