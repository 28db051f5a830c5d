// How good the model is on the val part: every sample exactly once, spread over the ranks however unevenly, counted in
// one confusion matrix.
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
  std::uint64_t skipped = 0;  // whose files are corrupt
};

// The share of a rank: sample i goes to rank i mod ranks.
std::vector<std::uint64_t> ShardOf(std::uint64_t samples, int rank, int ranks);

// A collective; the same numbers on all ranks. Nothing: some rank was told to stop, and the result would be of a part
// alone. `corrupt` gets a line for each file that cannot be read.
std::optional<ValidationResult> Validate(TrainStep& train_step, Session& session, const dataset::Source& val,
                                         const config::Config& config, std::vector<std::string>& corrupt);

// The number by which checkpoints are compared: mIoU of segmentation, accuracy of classification.
std::string MetricName(config::Task task);
double MetricOf(config::Task task, const report::Scores& scores);

}  // namespace fulldeck::trainer
