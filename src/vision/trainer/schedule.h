// The learning rate of a step: a linear warm-up, then a decay to the end of the training. Pure.
#pragma once

#include <cstdint>

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

namespace fulldeck::trainer {

struct Schedule {
  double peak = 0;   // after the warm-up
  double first = 0;  // where the warm-up starts
  double last = 0;   // where the decay ends
  std::int64_t warmup = 0;
  std::int64_t total = 0;
  config::Decay decay = config::Decay::kPoly;
  double power = 1;

  // Of a step, counted from 0: `first` at 0, `peak` at `warmup`, near `last` at total − 1. A parameter group's factor
  // is for the whole curve. A warm-up as long as the training (or longer) never comes to its end.
  double At(std::int64_t step) const;
};

// `peak`: the config's lr, as it was scaled to the global batch (config::StepShape::lr).
Schedule ScheduleOf(const config::Train& train, double peak, std::int64_t total_steps);

}  // namespace fulldeck::trainer
