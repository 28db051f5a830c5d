// Measures the single-card speed, to which the speed of all cards is compared.
#pragma once

#include <fulldeck/session.h>

#include <cstdint>
#include <optional>

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

// Samples per second of forward, backward and optimizer on rank 0, while the other ranks wait idle: a few steps of a
// model of the same shape on one micro-batch of the train split; the model is then discarded. Changes no state of the
// training except torch's generators. Because there are no other ranks, synchronized batch normalization is replaced by
// group normalization. Takes seconds at most; nullopt if the samples cannot be read or memory runs out. A collective;
// the same number on all ranks.
std::optional<double> MeasureSingleCard(const config::Config& config, Session& session, const dataset::Source& train,
                                        const config::StepShape& shape);

}  // namespace fulldeck::trainer
