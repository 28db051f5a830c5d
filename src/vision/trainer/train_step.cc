#include "trainer/train_step.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>
#include <fulldeck/error.h>
#include <fulldeck/gradients.h>

#include <cstdio>

namespace fulldeck::trainer {
namespace {

GradScalerState ScalerFor(config::Precision precision) {
  GradScalerState state;
  state.enabled = precision == config::Precision::kFloat16;
  return state;
}

// Rows of a batch for one micro-batch. If files were corrupt, a batch has fewer rows than those of the other ranks. The
// number of micro-batches is still the same on all ranks, because every synchronized batch normalization is a
// collective. So a micro-batch may be empty.
struct Rows {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
Rows RowsOfMicroBatch(const MicroBatch& micro_batch, std::int64_t rows) {
  if (rows == micro_batch.total) return {micro_batch.begin, micro_batch.size};
  const std::int64_t begin = rows * micro_batch.index / micro_batch.count;
  return {begin, rows * (micro_batch.index + 1) / micro_batch.count - begin};
}

}  // namespace

std::optional<at::ScalarType> TypeOf(config::Precision precision) {
  switch (precision) {
    case config::Precision::kFloat32:
      return std::nullopt;
    case config::Precision::kBfloat16:
      return at::kBFloat16;
    case config::Precision::kFloat16:
      return at::kHalf;
  }
  return std::nullopt;
}

TrainStep::TrainStep(const config::Config& config, Session& session, std::int64_t classes,
                     const config::StepShape& shape)
    : config_(config), session_(session), scaler_(ScalerFor(config.train.precision)), rank_batch_(shape.rank_batch) {
  const config::Train& train = config.train;
  if (train.deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
  model_ = dinov3::VisionModel(config.model, config.data.task, classes,
                               static_cast<std::int64_t>(config.data.bands.size()), session.team());
  if (!config.model.weights.empty()) {
    // DataParallel broadcasts rank 0's weights; the other ranks do not need the report.
    session.OnMain("backbone weights", [&] { weights_ = dinov3::LoadBackbone(model_->backbone(), config.model); });
  }
  model_->to(session.device());
  model_->train();
  session.SeedDropout();

  // Batch normalization holds a group too.
  regroup_subscription_ = session.OnRegroup([this](const Team& team) { model_->UseTeam(team); });
  DataParallelOptions options;
  options.hash_every = static_cast<int>(train.hash_every);
  // Synchronized statistics are already the same on all ranks.
  options.broadcast_buffers = false;
  replicas_.emplace(model_, session, options);

  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (dinov3::ParamGroup& group : dinov3::ParamGroups(*model_, train.backbone_lr, train.decay_norm_and_bias)) {
    if (group.parameters.empty()) continue;
    auto of_group = std::make_unique<torch::optim::AdamWOptions>(train.lr * group.lr_factor);
    of_group->betas({train.betas[0], train.betas[1]}).weight_decay(group.decayed ? train.weight_decay : 0.0);
    groups.emplace_back(std::move(group.parameters), std::move(of_group));
    lr_factors_.push_back(group.lr_factor);
  }
  if (groups.empty()) {
    throw Error("no parameter of the model learns. Make model.freeze smaller.");
  }
  optimizer_ = std::make_unique<AdamW>(std::move(groups), torch::optim::AdamWOptions(train.lr));
  if (config.model.ema > 0) ema_.emplace(*model_, config.model.ema);

  MicroBatchOptions micro;
  micro.micro_batch = shape.micro_batch;
  micro.oom = train.oom == config::OnOutOfMemory::kHalve ? OutOfMemory::kHalve : OutOfMemory::kFail;
  micro.restored = model_->buffers();
  micro.apply = [this] { Apply(); };
  micro_.emplace(session, *optimizer_, std::move(micro));
}

// Invariant: N ranks take the step that one rank with the whole batch would take. Each micro-batch divides its summed
// loss by labeled / world_size, and DataParallel averages the gradients over the ranks, so the result is the mean over
// all labeled pixels. All ranks run the same number of micro-batches and therefore the same collectives. Whether the
// step was applied is decided from reduced gradients, so it is the same on all ranks; only then do the averages move.
bool TrainStep::Step(const TrainingBatch& batch, std::int64_t step, double lr, double labeled) {
  auto& groups = optimizer_->param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(lr * lr_factors_[i]);
  const at::Tensor labeled_per_rank =
      at::full({}, labeled / session_.world_size(), at::TensorOptions().dtype(at::kFloat).device(session_.device()));
  micro_->Run(rank_batch_,
              [&](const MicroBatch& micro_batch) { RunMicroBatch(batch, step, labeled_per_rank, micro_batch); });
  if (ema_ && stepped_) ema_->Update();
  return stepped_;
}

void TrainStep::RunMicroBatch(const TrainingBatch& batch, std::int64_t step, const at::Tensor& labeled,
                              const MicroBatch& micro_batch) {
  // A repeated step starts from zero.
  if (micro_batch.index == 0) losses_ = {};
  Rows rows = RowsOfMicroBatch(micro_batch, batch.images.size(0));
  const bool is_dummy = rows.size == 0;
  if (is_dummy) rows = {0, 1};
  const at::Tensor images = batch.images.narrow(0, rows.begin, rows.size);
  at::Tensor labels = batch.labels.narrow(0, rows.begin, rows.size);
  // Without labels the gradients are zero. The row only makes this rank call the same collectives as the others.
  if (is_dummy) labels = at::full_like(labels, dataset::kIgnored);

  dinov3::ForwardRandom random;
  random.seed = config_.seed;
  random.epoch = batch.epoch;
  random.step = static_cast<std::uint64_t>(step);
  random.samples.assign(batch.samples.begin() + rows.begin, batch.samples.begin() + rows.begin + rows.size);

  // Gradients accumulate locally; only the backward of the last micro-batch reduces them.
  std::optional<DataParallelCore::Unsynchronised> no_sync;
  if (!micro_batch.is_last()) no_sync.emplace(*replicas_);
  dinov3::Losses losses;
  {
    const auto type = TypeOf(config_.train.precision);
    std::optional<Autocast> cast;
    if (type) cast.emplace(session_.device().type(), *type);
    const dinov3::Prediction prediction = replicas_->Forward(images, &random);
    losses =
        dinov3::LossesOf(prediction, labels, config_.model, dataset::kIgnored, config_.train.label_smoothing, labeled);
  }
  scaler_.Scale(losses.total).backward();

  const c10::NoGradGuard no_grad;
  const auto add = [](at::Tensor& sum, const at::Tensor& value) {
    if (value.defined()) sum = sum.defined() ? sum + value.detach() : value.detach();
  };
  add(losses_.total, losses.total);
  add(losses_.main, losses.main);
  add(losses_.auxiliary, losses.auxiliary);
}

void TrainStep::Apply() {
  if (on_gradients) on_gradients();
  const double clip = config_.train.clip_norm;
  if (scaler_.state().enabled) {
    scaler_.Unscale(*replicas_);
    if (clip > 0) ClipGradNorm(*replicas_, clip);
    stepped_ = scaler_.Step(*replicas_, *optimizer_);
    return;
  }
  // Check before clipping: a norm that is not finite would spread to every gradient and hide the cause.
  if (clip > 0) {
    replicas_->CheckReduced();
    replicas_->CheckFinite();
    ClipGradNorm(*replicas_, clip);
  }
  replicas_->Step(*optimizer_);
  stepped_ = true;
}

TrainStep::EvaluationMode::EvaluationMode(TrainStep& train_step) : train_step_(train_step) {
  train_step_.model_->eval();
  if (train_step_.ema_) train_step_.ema_->Swap();
}

TrainStep::EvaluationMode::~EvaluationMode() {
  if (train_step_.ema_) train_step_.ema_->Swap();
  train_step_.model_->train();
}

at::Tensor TrainStep::Logits(const at::Tensor& images) {
  const c10::NoGradGuard no_grad;
  const auto type = TypeOf(config_.train.precision);
  std::optional<Autocast> cast;
  if (type) cast.emplace(session_.device().type(), *type);
  const dinov3::Prediction prediction = model_->forward(images);
  if (config_.data.task == model_spec::Task::kClassification) return prediction.logits;
  return dinov3::Prediction::Upsample(prediction.logits.to(at::kFloat), images.size(2), images.size(3));
}

void TrainStep::AddTo(State& state) {
  state.Module("model", *model_).Optimizer("optimizer", *optimizer_).Random();
  state.Text(
      "scaler",
      [this] {
        char text[80];
        std::snprintf(text, sizeof text, "%a %lld", scaler_.state().scale,
                      static_cast<long long>(scaler_.state().steps_since_overflow));
        return std::string(text);
      },
      [this](const std::string& text) {
        GradScalerState loaded = scaler_.state();
        long long since = 0;
        if (std::sscanf(text.c_str(), "%la %lld", &loaded.scale, &since) != 2) {
          throw Error("the scaler's state in the checkpoint cannot be read.");
        }
        loaded.steps_since_overflow = since;
        scaler_.Load(loaded);
      });
  if (ema_) {
    state.Tensors(
        "ema", [this] { return ema_->Save(); }, [this](const State::NamedTensors& tensors) { ema_->Load(tensors); });
  }
}

std::int64_t TrainStep::trainable_parameters() const {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : replicas_->parameters()) count += parameter.numel();
  return count;
}

}  // namespace fulldeck::trainer
