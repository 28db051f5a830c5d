// The live output of a run: the progress line on stdout, JSON lines, TensorBoard events. Only rank 0 has one. Its
// failures never fail a training: each is reported once and becomes a warning.
#pragma once

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
#include "trainer/validation.h"

namespace fulldeck::trainer {

// Over all ranks, since the previous line.
struct IntervalMetrics {
  std::int64_t step = 0;  // steps done
  double loss = 0;        // means
  double main_loss = 0;
  std::optional<double> auxiliary_loss;
  double lr = 0;
  double seconds = 0;  // of training, without validation and checkpoints
  double samples = 0;
  double data_share = 0, communication_share = 0;  // share of the time, averaged over the ranks
  struct Cards {
    int busy = 0, unknown = 0;
  };
  std::optional<Cards> cards;   // absent: no cards, or no telemetry
  int ranks_busy = 0;           // ranks that trained
  std::optional<double> scale;  // of the loss, in float16
};

class Progress {
 public:
  // `resumed_at`: steps that were done before.
  Progress(std::string folder, std::int64_t total_steps, int ranks, model_spec::Task task,
           std::optional<std::int64_t> resumed_at);

  void Step(const IntervalMetrics& measured);
  void Validated(std::int64_t step, const ValidationResult& result, double seconds);

  // Includes the points from before a resume.
  std::vector<report::Curve> Curves() const;
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void Note(const base::Result<void>& done);

  const std::string path_;
  const std::int64_t total_;
  const int ranks_;
  const model_spec::Task task_;
  std::optional<report::JsonLines> lines_;
  std::optional<report::EventFile> events_;
  std::optional<double> metric_;
  double seconds_per_step_ = 0;
  std::int64_t last_step_;
  std::vector<std::string> warnings_;
};

}  // namespace fulldeck::trainer
