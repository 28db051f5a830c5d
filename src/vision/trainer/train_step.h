// The trainable state and one step of it: model, replicas, optimizer, scaler, EMA weights. N ranks take the same step
// as one rank with the whole batch, however the labeled pixels are distributed over ranks and micro-batches.
//
// Threads: the loop's. All ranks make the same calls.
#pragma once

#include <ATen/core/Tensor.h>
#include <fulldeck/adamw.h>
#include <fulldeck/checkpoint.h>
#include <fulldeck/data_parallel.h>
#include <fulldeck/grad_scaler.h>
#include <fulldeck/micro_batches.h>
#include <fulldeck/session.h>

#include <cstdint>
#include <functional>
#include <memory>
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
#include "dinov3/ema.h"
#include "dinov3/losses.h"
#include "dinov3/vision_model.h"
#include "imagery/files.h"
#include "report/event_file.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "report/scores.h"
#include "trainer/batch_feed.h"

namespace fulldeck::trainer {

// The type of autocast; nullopt: float32, without autocast.
std::optional<at::ScalarType> TypeOf(config::Precision precision);

class TrainStep {
 public:
  // A collective. The session must outlive it. Weights come from the session's seed, then from the config's file.
  TrainStep(const config::Config& config, Session& session, std::int64_t classes, const config::StepShape& shape);

  // `labeled`: labeled pixels (samples) of the whole batch, over all ranks. Returns false if the step was skipped on
  // all ranks after an overflow in float16.
  bool Step(const TrainingBatch& batch, std::int64_t step, double lr, double labeled);
  // This rank's share: the mean over the ranks is the loss of the whole batch. On the device.
  const dinov3::Losses& losses() const { return losses_; }

  // Called in each step when the gradients are averaged, before they are unscaled or clipped.
  std::function<void()> on_gradients;

  // For validation: evaluation mode, with the EMA weights if the config enables them.
  class EvaluationMode {
   public:
    explicit EvaluationMode(TrainStep& train_step);
    ~EvaluationMode();
    EvaluationMode(const EvaluationMode&) = delete;
    EvaluationMode& operator=(const EvaluationMode&) = delete;

   private:
    TrainStep& train_step_;
  };
  // In evaluation mode: logits at the labels' size, [N, classes, H, W] or [N, classes]. Not a collective.
  at::Tensor Logits(const at::Tensor& images);

  // Adds everything that a checkpoint needs.
  void AddTo(State& state);

  dinov3::VisionModelImpl& model() { return *model_; }
  DataParallelCore& replicas() { return *replicas_; }
  const std::optional<WeightReport>& weights() const { return weights_; }
  const GradScaler& scaler() const { return scaler_; }
  const MicroBatches& micro_batches() const { return *micro_; }
  std::int64_t trainable_parameters() const;  // number of elements

 private:
  void RunMicroBatch(const TrainingBatch& batch, std::int64_t step, const at::Tensor& labeled,
                     const MicroBatch& micro_batch);
  void Apply();

  const config::Config& config_;
  Session& session_;
  dinov3::VisionModel model_{nullptr};
  std::optional<WeightReport> weights_;
  std::shared_ptr<void> regroup_subscription_;
  std::optional<DataParallel<dinov3::VisionModelImpl>> replicas_;
  std::vector<double> lr_factors_;  // by parameter group
  std::unique_ptr<AdamW> optimizer_;
  GradScaler scaler_;
  std::optional<dinov3::Ema> ema_;
  std::optional<MicroBatches> micro_;
  std::int64_t rank_batch_;
  dinov3::Losses losses_;
  bool stepped_ = false;
};

}  // namespace fulldeck::trainer
