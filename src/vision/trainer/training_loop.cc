#include "trainer/training_loop.h"

#include <ATen/ops/from_blob.h>
#include <fulldeck/error.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

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
#include "trainer/stop_signal.h"

namespace fulldeck::trainer {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool IsDue(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

// One entry per line: what and evidence, separated by a tab.
std::string ToText(const std::vector<report::Verified>& verified) {
  std::string text;
  for (const report::Verified& each : verified) text += each.what + "\t" + each.evidence + "\n";
  return text;
}

std::vector<report::Verified> VerifiedFromText(const std::string& text) {
  std::vector<report::Verified> verified;
  for (const std::string_view line : base::Split(text, '\n')) {
    const std::size_t tab = line.find('\t');
    if (tab != std::string_view::npos)
      verified.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))});
  }
  return verified;
}

}  // namespace

TrainingLoop::TrainingLoop(const config::Config& config, Session& session, TrainStep& train_step,
                           const dataset::Source& train, const dataset::Source& val, const config::StepShape& shape,
                           std::int64_t steps, std::vector<report::Verified> verified)
    : config_(config),
      session_(session),
      train_step_(train_step),
      train_(train),
      val_(val),
      shape_(shape),
      steps_(steps),
      schedule_(ScheduleOf(config.train, shape.lr, steps)),
      verified_(std::move(verified)) {
  train_step_.AddTo(state_);
  state_.Value("step", step_)
      .Value("position", position_)
      .Value("best_score", best_score_)
      .Value("best_step", best_step_)
      .Value("worse_in_a_row", worse_in_a_row_)
      .Value("one_card", single_card_);
  state_.Text(
      "verified", [this] { return ToText(verified_); },
      [this](const std::string& text) { verified_ = VerifiedFromText(text); });
  CheckpointOptions options;
  options.keep_last = static_cast<int>(config.checkpoint.keep_last);
  options.keep_best = static_cast<int>(config.checkpoint.keep_best);
  options.announce = false;
  checkpoints_ = std::make_unique<Checkpoints>(config::JobFolder(config).checkpoints(), session.team(), options);
}

void TrainingLoop::Resume(bool requested) {
  session_.EnterPhase(Phase::kLoading);
  // The checks of this start take precedence over those of an earlier one.
  const std::vector<report::Verified> of_this_start = verified_;
  const auto loaded = checkpoints_->Load(state_);
  if (!of_this_start.empty()) verified_ = of_this_start;
  if (!loaded) {
    if (session_.is_main() && requested) {
      base::Log(base::Severity::kWarning, "there is no checkpoint in " + base::Printable(checkpoints_->directory()) +
                                              ": the job begins at step 0.");
    }
    return;
  }
  resumed_at_ = step_;
  saved_step_ = step_;
  if (session_.is_main()) {
    for (const std::string& bad : loaded->passed_over) warnings_.push_back("a checkpoint was passed over: " + bad);
    std::printf("resumed at step %lld from %s, which %d ranks saved\n", static_cast<long long>(step_),
                loaded->folder.c_str(), loaded->saved_by_ranks);
    std::fflush(stdout);
  }
}

void TrainingLoop::Sum(std::vector<double>& values) {
  const auto begin = Clock::now();
  std::vector<at::Tensor> tensors = {
      at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kDouble))};
  session_.team().group->allreduce(tensors)->wait();
  times_.communication += SecondsSince(begin);
}

void TrainingLoop::RunStep(BatchFeed& feed, EarlyChecks& sanity_checks) {
  auto clock = session_.BeginStep();
  const auto begin = Clock::now();
  TrainingBatch batch = feed.Next();
  times_.data += SecondsSince(begin);
  sanity_checks.OnBatch(batch);
  for (const std::string& name : batch.skipped) corrupt_here_.push_back(name);
  session_.SetFingerprints(batch.fingerprint, 0);

  clock.Enter(Phase::kCompute);
  // All ranks learn of a stop signal in the same step. The batch of that step is not trained on, and position_ stays
  // before it, so a resumed run starts with it.
  std::vector<double> agreed = {static_cast<double>(batch.all_labeled()),
                                StopSignals::Received() == SIGTERM ? 1.0 : 0.0,
                                StopSignals::Received() == SIGUSR1 ? 1.0 : 0.0};
  const auto before = Clock::now();
  Sum(agreed);
  session_.AddCommunicationTime(Clock::now() - before);
  if (agreed[1] > 0 || agreed[2] > 0) {
    stop_signal_ = agreed[1] > 0 ? SIGTERM : SIGUSR1;
    return;
  }

  const auto compute = Clock::now();
  train_step_.Step(batch, step_, schedule_.At(step_), agreed[0]);
  const double waited =
      std::chrono::duration<double>(train_step_.replicas().communication_wait().value_or(std::chrono::nanoseconds(0)))
          .count();
  times_.communication += waited;
  times_.compute += SecondsSince(compute) - waited;
  feed.Stage();
  // step_ and position_ change together, after the step was applied: a checkpoint between two steps neither repeats nor
  // loses a sample.
  ++step_;
  position_ = batch.after.ToText();
  const auto samples = static_cast<std::uint64_t>(batch.samples.size());
  times_.samples += samples;
  interval_.samples += static_cast<double>(samples);
  ++interval_.steps;
  const auto add = [](at::Tensor& sum, const at::Tensor& value) {
    if (value.defined()) sum = sum.defined() ? sum + value : value;
  };
  add(interval_.total, train_step_.losses().total);
  add(interval_.main, train_step_.losses().main);
  add(interval_.auxiliary, train_step_.losses().auxiliary);
  const bool ends_interval = IsDue(step_, config::LogInterval(config_.log, steps_)) || step_ == steps_;
  if (ends_interval || sanity_checks.wants_loss()) Measure(ends_interval, sanity_checks);
  clock.Done(last_loss_, samples);
}

void TrainingLoop::Measure(bool ends_interval, EarlyChecks& sanity_checks) {
  if (sanity_checks.wants_loss()) {
    std::vector<double> loss = {train_step_.losses().total.to(at::kCPU, at::kDouble).item<double>()};
    Sum(loss);
    last_loss_ = loss[0] / session_.world_size();
    sanity_checks.OnLoss(last_loss_);
  }
  if (!ends_interval) return;
  const auto number = [](const at::Tensor& value) { return value.defined() ? value.to(at::kCPU).item<double>() : 0.0; };
  const bool has_auxiliary = interval_.auxiliary.defined();
  const LoopTimes& since = interval_.at_begin;
  const double data = times_.data - since.data;
  const double compute = times_.compute - since.compute;
  const double communication = times_.communication - since.communication;
  const double seconds = data + compute + communication;
  const std::optional<CardUse> card = session_.card_use();
  const auto is = [&](CardUse use) { return card == use ? 1.0 : 0.0; };
  std::vector<double> sums = {number(interval_.total),
                              number(interval_.main),
                              number(interval_.auxiliary),
                              interval_.samples,
                              interval_.samples > 0 ? 1.0 : 0.0,
                              seconds,
                              data,
                              communication,
                              static_cast<double>(corrupt_here_.size()),
                              card ? 1.0 : 0.0,
                              is(CardUse::kBusy),
                              is(CardUse::kUnknown)};
  Sum(sums);
  const double ranks = session_.world_size();
  const double steps = static_cast<double>(interval_.steps);
  IntervalMetrics measured;
  measured.step = step_;
  measured.loss = sums[0] / ranks / steps;
  measured.main_loss = sums[1] / ranks / steps;
  if (has_auxiliary) measured.auxiliary_loss = sums[2] / ranks / steps;
  measured.lr = schedule_.At(step_ - 1);
  measured.samples = sums[3];
  measured.ranks_busy = static_cast<int>(sums[4]);
  // From the launcher's card telemetry; absent without cards or telemetry.
  if (sums[9] == ranks) measured.cards = {static_cast<int>(sums[10]), static_cast<int>(sums[11])};
  measured.seconds = sums[5] / ranks;
  measured.data_share = sums[5] > 0 ? sums[6] / sums[5] : 0;
  measured.communication_share = sums[5] > 0 ? sums[7] / sums[5] : 0;
  if (train_step_.scaler().state().enabled) measured.scale = train_step_.scaler().scale();
  last_loss_ = measured.loss;
  training_seconds_ += measured.seconds;
  all_samples_ += measured.samples;
  if (progress_) progress_->Step(measured);
  if (sums[8] > 0) CountCorrupt();
  interval_ = {};
  interval_.at_begin = times_;
}

// Each rank's pipeline knows only the files that it read, and a file may move to another rank in the next epoch.
void TrainingLoop::CountCorrupt() {
  for (const std::string& text : GatherTexts(session_.team(), "corrupt files", base::Join(corrupt_here_, "\n"))) {
    for (const std::string_view name : base::Split(text, '\n')) {
      if (!name.empty()) corrupt_.emplace(name);
    }
  }
  corrupt_here_.clear();
  if (corrupt_.size() <= static_cast<std::size_t>(config_.data.corrupt_allowed)) return;
  throw Error(std::to_string(corrupt_.size()) + " files cannot be read, and data.corrupt_allowed is " +
              std::to_string(config_.data.corrupt_allowed) + ": " +
              base::Printable(base::Join({corrupt_.begin(), corrupt_.end()}, ", ")) +
              ". Repair or remove them, or allow as many.");
}

void TrainingLoop::ValidateNow() {
  const auto begin = Clock::now();
  std::vector<std::string> corrupt;
  auto result = Validate(train_step_, session_, val_, config_, corrupt);
  const double seconds = SecondsSince(begin);
  times_.other += seconds;
  for (std::string& why : corrupt) warnings_.push_back("validation: " + std::move(why));
  if (!result) return;
  validated_step_ = step_;
  validation_ = std::move(result);
  const double score = MetricOf(config_.data.task, validation_->scores);
  if (best_step_ < 0 || score > best_score_) {
    best_score_ = score;
    best_step_ = step_;
    worse_in_a_row_ = 0;
  } else {
    ++worse_in_a_row_;
  }
  if (progress_) progress_->Validated(step_, *validation_, seconds);
}

void TrainingLoop::Save(bool has_score) {
  const auto begin = Clock::now();
  session_.EnterPhase(Phase::kCheckpoint);
  const SaveReport report = checkpoints_->Save(
      step_, state_,
      has_score ? std::optional<double>(MetricOf(config_.data.task, validation_->scores)) : std::nullopt);
  if (report.earlier_failure) warnings_.push_back("a checkpoint was not saved: " + *report.earlier_failure);
  saved_step_ = step_;
  times_.other += SecondsSince(begin);
}

// Invariant: every decision here and in Run depends only on the step, the config, and values that a collective made
// equal on all ranks (the agreed signal, the validation's counts). So all ranks validate, save and stop together.
TrainingLoop::Next TrainingLoop::AfterStep() {
  const bool is_last = step_ == steps_;
  if (is_last || IsDue(step_, config_.validation.every)) ValidateNow();
  const bool validated = validated_step_ == step_;
  const bool gives_up = validated && config_.validation.patience > 0 && worse_in_a_row_ >= config_.validation.patience;
  // The best model is saved even if no checkpoint is due.
  const bool is_best = validated && best_step_ == step_ && config_.checkpoint.keep_best > 0;
  if (is_last || gives_up || is_best || IsDue(step_, config_.checkpoint.every)) Save(validated);
  if (gives_up && !is_last) {
    if (session_.is_main()) {
      std::printf("stopped early at step %lld: no better %s than %.4f (step %lld) in %lld validations\n",
                  static_cast<long long>(step_), MetricName(config_.data.task).c_str(), best_score_,
                  static_cast<long long>(best_step_), static_cast<long long>(worse_in_a_row_));
      std::fflush(stdout);
    }
    return Next::kStop;
  }
  return is_last ? Next::kStop : Next::kContinue;
}

LoopResult TrainingLoop::Run() {
  if (session_.is_main()) {
    progress_ = std::make_unique<Progress>(config::JobFolder(config_).path, steps_, session_.world_size(),
                                           config_.data.task, resumed_at_);
  }
  Sampler sampler(
      {.size = train_.size(), .global_batch = static_cast<std::uint64_t>(shape_.global_batch), .seed = config_.seed},
      session_.team());
  if (!position_.empty()) sampler.FromText(position_);
  EarlyChecks sanity_checks(session_, train_step_.replicas(), config_.model.drop_path > 0);
  train_step_.on_gradients = [&sanity_checks] { sanity_checks.OnGradients(); };
  session_.SetProgress(static_cast<std::uint64_t>(step_), static_cast<std::uint64_t>(steps_), sampler.epoch());
  checkpoints_->Prepare(state_);

  LoopResult result;
  {
    const StopSignals signals;
    BatchFeed feed(train_, config_.data, std::move(sampler), static_cast<std::int64_t>(train_.classes().size()),
                   config_.seed, steps_ - step_, session_.device());
    if (step_ >= steps_) ValidateNow();
    bool stopped_early = false;
    while (step_ < steps_) {
      RunStep(feed, sanity_checks);
      if (stop_signal_ != 0) break;
      checkpoints_->Check();
      if (AfterStep() == Next::kStop) {
        stopped_early = step_ < steps_;
        break;
      }
    }
    for (const std::string& why : feed.corrupt()) warnings_.push_back("training: " + why);
    if (stop_signal_ != 0) {
      if (saved_step_ != step_ && step_ > 0) Save(false);
      result.outcome = "stopped by " + SignalName(stop_signal_) + " at step " + std::to_string(step_) + " of " +
                       std::to_string(steps_) + "; go on with --resume";
      result.exit_code = ExitCodeAfter(stop_signal_);
    } else if (stopped_early) {
      result.outcome = "stopped early at step " + std::to_string(step_) + " of " + std::to_string(steps_);
    } else {
      result.outcome = "finished " + std::to_string(steps_) + " steps";
    }
    checkpoints_->Finish();
  }
  train_step_.on_gradients = nullptr;

  result.step = step_;
  if (validated_step_ == step_) result.validation = validation_;
  if (best_step_ >= 0) result.best = report::Point{best_step_, best_score_};
  result.times = times_;
  result.samples_per_second = training_seconds_ > 0 ? all_samples_ / training_seconds_ : 0;
  if (single_card_ > 0) result.single_card = single_card_;
  result.verified = verified_;
  for (const report::Verified& each : sanity_checks.verified()) result.verified.push_back(each);
  const auto compared = config_.train.hash_every > 0
                            ? train_step_.replicas().steps() / static_cast<std::uint64_t>(config_.train.hash_every)
                            : 0;
  if (session_.world_size() > 1 && compared > 0) {
    result.verified.push_back(
        {"parameters are the same bits on all " + std::to_string(session_.world_size()) + " ranks",
         "hash compared " + std::to_string(compared) + " times in this start"});
  }
  if (result.validation) {
    result.verified.push_back(
        {"validation saw every sample exactly once", std::to_string(result.validation->samples) + " samples over " +
                                                         std::to_string(session_.world_size()) + " ranks, " +
                                                         std::to_string(result.validation->skipped) + " left out"});
  }
  result.warnings = warnings_;
  if (progress_) {
    for (const std::string& warning : progress_->warnings()) result.warnings.push_back(warning);
  }
  return result;
}

}  // namespace fulldeck::trainer
