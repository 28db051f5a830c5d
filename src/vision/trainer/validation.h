// Scores of the model on the val split: every sample exactly once, distributed over the ranks (evenly or not), counted
// in one confusion matrix.
#pragma once

#include <fulldeck/session.h>

#include <cstdint>
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

namespace fulldeck::trainer {

struct ValidationResult {
  report::ConfusionMatrix matrix;
  report::Scores scores;
  std::uint64_t samples = 0;  // over all ranks
  std::uint64_t skipped = 0;  // samples whose files are corrupt
};

// The samples of a rank: sample i belongs to rank i mod ranks.
std::vector<std::uint64_t> ShardOf(std::uint64_t samples, int rank, int ranks);

// A collective; the same numbers on all ranks. nullopt: some rank received a stop signal, so the result would cover
// only part of the samples. `corrupt` receives a line for each unreadable file.
std::optional<ValidationResult> Validate(TrainStep& train_step, Session& session, const dataset::Source& val,
                                         const config::Config& config, std::vector<std::string>& corrupt);

// The score that checkpoints are compared by: mIoU of segmentation, accuracy of classification.
std::string MetricName(model_spec::Task task);
double MetricOf(model_spec::Task task, const report::Scores& scores);

}  // namespace fulldeck::trainer
