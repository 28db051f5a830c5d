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
  double first = 0;  // at the start of the warm-up
  double last = 0;   // at the end of the decay
  std::int64_t warmup = 0;
  std::int64_t total = 0;
  config::Decay decay = config::Decay::kPoly;
  double power = 1;

  // The rate of a step, counted from 0: `first` at 0, `peak` at `warmup`, near `last` at total − 1. A parameter group's
  // factor scales the whole curve. A warm-up as long as the training (or longer) does not reach the peak.
  double At(std::int64_t step) const;
};

// `peak`: the config's lr, scaled to the global batch (config::StepShape::lr).
Schedule ScheduleOf(const config::Train& train, double peak, std::int64_t total_steps);

}  // namespace fulldeck::trainer
