// The training loop: steps, and between them metrics, validations and checkpoints, until the last step, early stopping,
// or a signal. Threads: one; all ranks make the same calls.
#pragma once

#include <fulldeck/checkpoint.h>
#include <fulldeck/sampler.h>
#include <fulldeck/session.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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
#include "trainer/batch_feed.h"
#include "trainer/finish.h"
#include "trainer/progress.h"
#include "trainer/sanity_checks.h"
#include "trainer/schedule.h"
#include "trainer/train_step.h"
#include "trainer/validation.h"

namespace fulldeck::trainer {

struct LoopResult {
  std::int64_t step = 0;  // steps done
  std::string outcome;    // "finished 300 steps"
  int exit_code = 0;
  std::optional<ValidationResult> validation;  // of the last step
  std::optional<report::Point> best;           // the best score and its step
  LoopTimes times;
  double samples_per_second = 0;  // of all ranks, without validation and checkpoints
  std::optional<double> single_card;
  std::vector<report::Verified> verified;
  std::vector<std::string> warnings;
};

class TrainingLoop {
 public:
  // A collective. All references must outlive the loop. `verified`: checks that already passed; they are saved in the
  // checkpoints too.
  TrainingLoop(const config::Config& config, Session& session, TrainStep& train_step, const dataset::Source& train,
               const dataset::Source& val, const config::StepShape& shape, std::int64_t steps,
               std::vector<report::Verified> verified);

  // The single-card speed, for the report; saved in the checkpoints.
  void set_single_card(double samples_per_second) { single_card_ = samples_per_second; }
  // Resumes from the newest checkpoint. Without one it starts at step 0, and warns if `requested`.
  void Resume(bool requested);
  LoopResult Run();

  // Only on rank 0, after Run has started; otherwise nullptr.
  const Progress* progress() const { return progress_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Next { kContinue, kStop };

  void RunStep(BatchFeed& feed, EarlyChecks& sanity_checks);
  void Measure(bool ends_interval, EarlyChecks& sanity_checks);
  void CountCorrupt();
  void ValidateNow();
  void Save(bool has_score);
  Next AfterStep();
  // Sums over the ranks, in place; the time counts as communication.
  void Sum(std::vector<double>& values);

  const config::Config& config_;
  Session& session_;
  TrainStep& train_step_;
  const dataset::Source& train_;
  const dataset::Source& val_;
  const config::StepShape shape_;
  const std::int64_t steps_;
  const Schedule schedule_;
  std::unique_ptr<Progress> progress_;
  State state_;
  std::unique_ptr<Checkpoints> checkpoints_;

  // ---- saved in the checkpoint ----
  std::int64_t step_ = 0;
  std::string position_;  // of the sampler; empty: the start
  double best_score_ = 0;
  std::int64_t best_step_ = -1;
  std::int64_t worse_in_a_row_ = 0;
  std::vector<report::Verified> verified_;
  double single_card_ = 0;  // 0: not measured

  // ---- of this process ----
  std::optional<std::int64_t> resumed_at_;
  int stop_signal_ = 0;
  std::int64_t saved_step_ = -1;
  std::int64_t validated_step_ = -1;
  std::optional<ValidationResult> validation_;
  std::set<std::string> corrupt_;          // of all ranks, at the last line
  std::vector<std::string> corrupt_here_;  // of this rank, since then
  std::vector<std::string> warnings_;
  LoopTimes times_;
  // Since the last line.
  struct Interval {
    std::int64_t steps = 0;
    double samples = 0;
    LoopTimes at_begin;
    at::Tensor total, main, auxiliary;
  };
  Interval interval_;
  double last_loss_ = 0;
  double training_seconds_ = 0;
  double all_samples_ = 0;
};

}  // namespace fulldeck::trainer
