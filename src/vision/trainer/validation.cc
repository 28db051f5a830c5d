#include "trainer/validation.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fulldeck/error.h>

#include <algorithm>

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
#include "trainer/stop_signal.h"

namespace fulldeck::trainer {
namespace {

// [classes²] on the CPU, of one batch.
at::Tensor CountsOf(const at::Tensor& logits, const at::Tensor& labels, std::int64_t classes) {
  const at::Tensor counted = labels != dataset::kIgnored;
  const at::Tensor pairs = (labels * classes + logits.argmax(1)).masked_select(counted);
  return at::bincount(pairs, {}, classes * classes).to(at::kCPU);
}

}  // namespace

std::vector<std::uint64_t> ShardOf(std::uint64_t samples, int rank, int ranks) {
  std::vector<std::uint64_t> shard;
  for (auto i = static_cast<std::uint64_t>(rank); i < samples; i += static_cast<std::uint64_t>(ranks))
    shard.push_back(i);
  return shard;
}

std::optional<ValidationResult> Validate(TrainStep& train_step, Session& session, const dataset::Source& val,
                                         const config::Config& config, std::vector<std::string>& corrupt) {
  const auto classes = static_cast<std::int64_t>(val.classes().size());
  const TrainStep::EvaluationMode evaluation(train_step);
  const c10::NoGradGuard no_grad;
  session.EnterPhase(Phase::kValidation);

  dataset::PipelineOptions options;
  options.augment = false;
  options.whole = config.data.task == model_spec::Task::kSegmentation;
  options.seed = config.seed;
  options.on_corrupt = [&](const dataset::CorruptFile& file) { corrupt.push_back(base::Printable(file.why)); };
  dataset::Pipeline pipeline(val, config.data, std::move(options));
  const std::vector<std::uint64_t> shard = ShardOf(val.size(), session.rank(), session.world_size());
  const auto batch_size = static_cast<std::size_t>(config.validation.batch);
  std::size_t requested = 0;
  const auto request_next = [&] {
    if (requested >= shard.size()) return;
    const std::size_t end = std::min(requested + batch_size, shard.size());
    pipeline.Request(
        {0,
         {shard.begin() + static_cast<std::ptrdiff_t>(requested), shard.begin() + static_cast<std::ptrdiff_t>(end)}});
    requested = end;
  };
  for (std::int64_t i = 0; i < std::max<std::int64_t>(config.data.prefetch, 1); ++i) request_next();

  // Layout: counts, then samples, skipped samples, ranks that received a stop signal.
  at::Tensor sums = at::zeros({classes * classes + 3}, at::kLong);
  auto* extra = sums.data_ptr<std::int64_t>() + classes * classes;
  while (pipeline.requested() > 0) {
    if (StopSignals::Received() != 0) break;
    auto got = pipeline.Next();
    if (!got.ok()) throw Error(got.error().message);
    if (got->last) request_next();
    const LabeledBatch batch = ToDevice(*got, val, classes, session.device());
    sums.narrow(0, 0, classes * classes) += CountsOf(train_step.Logits(batch.images), batch.labels, classes);
    extra[0] += got->count;
    extra[1] += static_cast<std::int64_t>(got->skipped.size());
  }
  extra[2] = StopSignals::Received() != 0 ? 1 : 0;
  std::vector<at::Tensor> all = {sums};
  session.team().group->allreduce(all)->wait();
  if (extra[2] != 0) return std::nullopt;

  ValidationResult result;
  result.matrix.classes = classes;
  result.matrix.counts.assign(sums.data_ptr<std::int64_t>(), extra);
  result.samples = static_cast<std::uint64_t>(extra[0]);
  result.skipped = static_cast<std::uint64_t>(extra[1]);
  if (result.samples + result.skipped != val.size()) {
    throw Error("validation saw " + std::to_string(result.samples) + " samples and left " +
                std::to_string(result.skipped) + " out, but the val part has " + std::to_string(val.size()) +
                ". The ranks do not see the same files: check the data folder on every host.");
  }
  result.scores = report::ScoresOf(result.matrix, val.classes());
  return result;
}

std::string MetricName(model_spec::Task task) {
  return task == model_spec::Task::kSegmentation ? "mIoU" : "accuracy";
}

double MetricOf(model_spec::Task task, const report::Scores& scores) {
  return task == model_spec::Task::kSegmentation ? scores.miou : scores.accuracy;
}

}  // namespace fulldeck::trainer
