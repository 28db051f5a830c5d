// Sanity checks of a training: is the data what the config says, do the ranks train on different samples, does every
// part of the model receive gradients, does the loss change. A failed check throws a Refusal with the fix, the same on
// all ranks; a passed one is listed in the report with its evidence.
//
// The first functions are pure, for tests; the others communicate with the other ranks. None takes more than seconds.
#pragma once

#include <ATen/core/Tensor.h>
#include <fulldeck/data_parallel.h>
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
#include "trainer/batch_feed.h"

namespace fulldeck::trainer {

// ---- pure: the problem, or nullopt ----

// One rank's rows of a global batch.
struct SeenBatch {
  std::uint64_t fingerprint = 0;  // of indices and pixels
  std::vector<std::uint64_t> samples;
};
// Batches of the same global batch, by rank. Problem: a sample on two ranks, or two ranks with the same pixels.
std::optional<std::string> ProblemOfRanks(const std::vector<SeenBatch>& by_rank);
// The first batches of two epochs; the samples of all ranks, concatenated.
std::optional<std::string> ProblemOfEpochs(const std::vector<std::uint64_t>& before,
                                           const std::vector<std::uint64_t>& after);
// `without`: trainable parameters, by name, whose gradient was zero in each of the first `steps` steps.
std::optional<std::string> ProblemOfGradients(const std::vector<std::string>& without, std::size_t parameters,
                                              std::int64_t steps);
// Losses of the first steps.
std::optional<std::string> ProblemOfLosses(const std::vector<double>& losses);

// ---- with the other ranks ----

// Checks labels, images, and whether both splits contain the same files. Rank 0 reads the data, the others wait.
std::vector<report::Verified> CheckData(Session& session, const model_spec::DataOptions& data,
                                        const dataset::Source& train, const dataset::Source& val);

// Checks the first steps of a run (also of a resumed one) and the start of the second epoch.
class EarlyChecks {
 public:
  EarlyChecks(Session& session, DataParallelCore& replicas, bool uses_drop_path)
      : session_(session), replicas_(replicas), uses_drop_path_(uses_drop_path) {}

  // Call it in every step, on all ranks. Throws a Refusal.
  void OnBatch(const TrainingBatch& batch);
  // Call it when the gradients are averaged.
  void OnGradients();
  // The loss over all ranks; wants_loss() returns whether it is needed.
  bool wants_loss() const { return !loss_moved_ && losses_.size() < kLosses; }
  void OnLoss(double loss);

  const std::vector<report::Verified>& verified() const { return verified_; }

  static constexpr std::size_t kLosses = 20;

 private:
  std::vector<SeenBatch> OfAllRanks(const TrainingBatch& batch);

  Session& session_;
  DataParallelCore& replicas_;
  const bool uses_drop_path_;
  int batches_compared_ = 0;
  std::optional<std::vector<std::uint64_t>> epoch_began_with_;
  bool epochs_compared_ = false;
  std::vector<bool> has_gradient_;
  std::int64_t gradient_steps_ = 0;
  bool gradients_done_ = false;
  std::vector<double> losses_;
  bool loss_moved_ = false;
  std::vector<report::Verified> verified_;
};

}  // namespace fulldeck::trainer
