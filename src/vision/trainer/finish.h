// The end of a job: what all ranks measured, gathered on rank 0 and written as the report.
#pragma once

#include <fulldeck/session.h>

#include <optional>
#include <string>
#include <vector>

#include "trainer/torch_free_layers.h"
#include "trainer/train_step.h"
#include "trainer/validation.h"

namespace fulldeck::trainer {

// Seconds of this rank since its start (or resume), and samples.
struct LoopTimes {
  double data = 0, compute = 0, communication = 0, other = 0;
  std::uint64_t samples = 0;
};

// Of all ranks, by rank. A collective.
std::vector<report::RankTimes> GatherTimes(Session& session, const LoopTimes& mine);

// Tiles of the val part with truth and prediction, spread evenly over it. On one rank alone; leaves out what cannot be
// read.
std::vector<report::Example> Examples(TrainStep& train_step, Session& session, const dataset::Source& val,
                                      const config::Config& config);

}  // namespace fulldeck::trainer
