// The training job from its config to its report, as one rank runs it. docs/train.md tells what happens in which order.
#pragma once

#include "config/config.h"

namespace fulldeck::trainer {

struct JobOptions {
  // Goes on from the newest checkpoint in the job's folder. A rank that the launcher started again does so by itself.
  bool resume = false;
};

// Trains to the end (or until it is told to stop) and returns the exit code. A failure is told, and ends the process.
// Throws only what the session throws while the ranks meet.
int RunJob(const config::Config& config, const JobOptions& options);

}  // namespace fulldeck::trainer
