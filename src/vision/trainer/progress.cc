#include "trainer/progress.h"

#include <algorithm>
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

namespace fulldeck::trainer {

Progress::Progress(std::string folder, std::int64_t total_steps, int ranks, model_spec::Task task,
                   std::optional<std::int64_t> resumed_at)
    : path_(folder + "/metrics.jsonl"),
      total_(total_steps),
      ranks_(ranks),
      task_(task),
      last_step_(resumed_at.value_or(0)) {
  auto lines = report::JsonLines::Open(path_, resumed_at);
  if (lines.ok()) {
    lines_.emplace(*std::move(lines));
  } else {
    Note(lines.error());
  }
  auto events = report::EventFile::Create(folder + "/events", resumed_at);
  if (events.ok()) {
    events_.emplace(*std::move(events));
  } else {
    Note(events.error());
  }
}

void Progress::Note(const base::Result<void>& done) {
  if (done.ok() || warnings_.size() >= 10) return;
  warnings_.push_back(done.error().message);
  base::Log(base::Severity::kWarning, done.error().message);
}

void Progress::Step(const IntervalMetrics& measured) {
  const auto steps = static_cast<double>(std::max<std::int64_t>(measured.step - last_step_, 1));
  last_step_ = measured.step;
  const double per_step = measured.seconds / steps;
  // Smoothed: one slow step must not change the ETA much.
  seconds_per_step_ = seconds_per_step_ == 0 ? per_step : 0.7 * seconds_per_step_ + 0.3 * per_step;
  const double speed = measured.seconds > 0 ? measured.samples / measured.seconds : 0;

  report::Progress shown;
  shown.step = measured.step;
  shown.total = total_;
  shown.loss = measured.loss;
  shown.lr = measured.lr;
  shown.samples_per_second = speed;
  shown.seconds_left = seconds_per_step_ * static_cast<double>(total_ - measured.step);
  shown.ranks = ranks_;
  shown.ranks_busy = measured.ranks_busy;
  if (measured.cards) {
    shown.cards_busy = measured.cards->busy;
    shown.cards_unknown = measured.cards->unknown;
  }
  shown.metric_name = MetricName(task_);
  shown.metric = metric_;
  std::printf("%s\n", report::ProgressLine(shown).c_str());
  std::fflush(stdout);

  if (lines_) {
    report::JsonLine line(measured.step);
    line.Number("loss", measured.loss).Number("loss_main", measured.main_loss);
    if (measured.auxiliary_loss) line.Number("loss_auxiliary", *measured.auxiliary_loss);
    line.Number("lr", measured.lr)
        .Number("samples_per_second", speed)
        .Number("data_share", measured.data_share)
        .Number("communication_share", measured.communication_share)
        .Integer("ranks", measured.ranks_busy);
    if (measured.cards) {
      line.Integer("cards_busy", measured.cards->busy).Integer("cards_unknown", measured.cards->unknown);
    }
    if (measured.scale) line.Number("loss_scale", *measured.scale);
    Note(lines_->Append(line));
  }
  if (events_) {
    const std::int64_t step = measured.step;
    Note(events_->Scalar("train/loss", step, measured.loss));
    Note(events_->Scalar("train/loss_main", step, measured.main_loss));
    if (measured.auxiliary_loss) Note(events_->Scalar("train/loss_auxiliary", step, *measured.auxiliary_loss));
    Note(events_->Scalar("train/lr", step, measured.lr));
    Note(events_->Scalar("speed/samples_per_second", step, speed));
    Note(events_->Scalar("speed/data_share", step, measured.data_share));
    Note(events_->Scalar("speed/communication_share", step, measured.communication_share));
    Note(events_->Flush());
  }
}

void Progress::Validated(std::int64_t step, const ValidationResult& result, double seconds) {
  const report::Scores& scores = result.scores;
  metric_ = MetricOf(task_, scores);
  std::printf("validation at step %lld: mIoU %.4f  mDice %.4f  mFscore %.4f  accuracy %.4f  (%llu samples, %.1f s)\n",
              static_cast<long long>(step), scores.miou, scores.mdice, scores.mfscore, scores.accuracy,
              static_cast<unsigned long long>(result.samples), seconds);
  std::fflush(stdout);
  if (lines_) {
    report::JsonLine line(step);
    line.Number("mIoU", scores.miou)
        .Number("mDice", scores.mdice)
        .Number("mFscore", scores.mfscore)
        .Number("accuracy", scores.accuracy)
        .Number("mean_accuracy", scores.mean_accuracy)
        .Integer("samples", static_cast<std::int64_t>(result.samples))
        .Integer("left_out", static_cast<std::int64_t>(result.skipped));
    Note(lines_->Append(line));
  }
  if (events_) {
    Note(events_->Scalar("val/mIoU", step, scores.miou));
    Note(events_->Scalar("val/mDice", step, scores.mdice));
    Note(events_->Scalar("val/mFscore", step, scores.mfscore));
    Note(events_->Scalar("val/accuracy", step, scores.accuracy));
    Note(events_->Flush());
  }
}

std::vector<report::Curve> Progress::Curves() const {
  const std::vector<std::string> names = {"loss", "lr", MetricName(task_), "samples_per_second"};
  auto curves = report::ReadCurves(path_, names);
  if (!curves.ok()) return {};
  for (report::Curve& curve : *curves) {
    if (curve.name == "samples_per_second") curve.name = "samples/s";
  }
  return *std::move(curves);
}

}  // namespace fulldeck::trainer
