// The end of a job: gathers the measurements of all ranks on rank 0 and writes the report.
#pragma once

#include <fulldeck/session.h>

#include <optional>
#include <string>
#include <vector>

#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "config/config.h"
#include "config/job_folder.h"
#include "config/read.h"
#include "config/step_shape.h"
#include "dataset/checks.h"
#include "dataset/pipeline.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "report/event_file.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "report/scores.h"
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

// Tiles of the val split with truth and prediction, spread evenly over it. Runs on one rank only; skips unreadable
// samples.
std::vector<report::Example> Examples(TrainStep& train_step, Session& session, const dataset::Source& val,
                                      const config::Config& config);

}  // namespace fulldeck::trainer
