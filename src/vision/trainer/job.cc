#include "trainer/job.h"

#include <c10/util/Exception.h>
#include <fulldeck/checkpoint.h>
#include <fulldeck/error.h>
#include <fulldeck/sampler.h>
#include <fulldeck/session.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <set>

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
#include "trainer/failure.h"
#include "trainer/finish.h"
#include "trainer/progress.h"
#include "trainer/resume.h"
#include "trainer/sanity_checks.h"
#include "trainer/schedule.h"
#include "trainer/single_card.h"
#include "trainer/stop_signal.h"
#include "trainer/train_step.h"
#include "trainer/training_loop.h"
#include "trainer/validation.h"

namespace fulldeck::trainer {
namespace {

constexpr char kTrainedWith[] = "/trained_with.txt";

SessionOptions OptionsOf(const config::Config& config) {
  SessionOptions options;
  options.backend = config.environment.backend;
  options.timeout = std::chrono::seconds(config.environment.timeout);
  options.open_files = static_cast<int>(config.environment.open_files);
  if (config.environment.threads > 0) options.threads = static_cast<int>(config.environment.threads);
  if (config.environment.cudnn_benchmark) options.cudnn_benchmark = true;
  options.memory_watermark = config.environment.memory_watermark;
  return options;
}

std::unique_ptr<dataset::Source> Open(const config::Config& config, dataset::Split part) {
  auto source = dataset::OpenSource(config.data, part, config.seed);
  if (!source.ok()) throw Error(source.error().message);
  return *std::move(source);
}

bool IsRestart() {
  const char* const count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return count != nullptr && base::ParseInteger<int>(count).value_or(0) > 0;
}

// Torch's warnings except one: that the memory layout of a gradient differs from its bucket. It costs a copy of a few
// elements, and every rank would print it.
class TorchWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Grad strides do not match bucket view strides") == std::string::npos) {
      c10::WarningHandler::process(warning);
    }
  }
};

// Only on rank 0.
void PrepareFolder(const config::JobFolder& folder, const std::string& trained_with, bool resumes) {
  const std::string kept = folder.path + kTrainedWith;
  if (!resumes && !folder.Checkpoints().empty()) {
    throw Refusal(base::Printable(folder.checkpoints()) + " has checkpoints already, up to " +
                  folder.Checkpoints().back() +
                  ". Add --resume to go on from there, give the job another name, or remove the folder.");
  }
  const auto saved = base::ReadWholeFile(kept, config::kMaxConfigBytes);
  if (resumes && !folder.Checkpoints().empty() && saved.ok()) {
    const Changes changes = CompareForResume(*saved, trained_with);
    if (!changes.refusal.empty()) throw Refusal(changes.refusal);
    if (!changes.changed.empty()) {
      base::Log(base::Severity::kWarning,
                "this is not what the checkpoints were made with: " + base::Join(changes.changed, "; ") + ".");
    }
  }
  const auto written = base::ReplaceFile(kept, trained_with);
  if (!written.ok()) throw Error(written.error().message);
}

std::string ScoreText(double score) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", score);
  return text;
}

// The report of the whole run.
void WriteReportOf(const LoopResult& result, TrainingLoop& loop, TrainStep& train_step, Session& session,
                   const config::Config& config, const config::JobFolder& folder, const config::StepShape& shape,
                   const dataset::Source& train, const dataset::Source& val,
                   const std::vector<report::RankTimes>& ranks) {
  report::RunReport report;
  report.title = config.name;
  report.outcome = result.outcome;
  report.metric_name = MetricName(config.data.task);
  report.ranks = ranks;
  report.legend = report::PaletteOf(val.classes());
  report.curves = loop.progress()->Curves();
  report.verified = result.verified;
  report.warnings = result.warnings;
  report.samples_per_second = result.samples_per_second;
  std::set<std::string> kinds;
  for (const report::RankTimes& rank : ranks) kinds.insert(rank.device.substr(0, rank.device.find(':')));
  const bool simulated = std::getenv("FULLDECK_SIMULATE") != nullptr && kinds != std::set<std::string>{"cpu"};
  report.facts = {
      {"ranks", std::to_string(session.world_size()) + " × " + base::Join({kinds.begin(), kinds.end()}, ", ") +
                    (simulated ? " (simulated)" : "")},
      {"backend", session.backend() + " (" + session.backend_reason() + ")"},
      {"model", config.model.backbone + ", " + std::to_string(train_step.trainable_parameters()) + " parameters learn"},
      {"samples", std::to_string(train.size()) + " to train, " + std::to_string(val.size()) + " to validate"},
      {"global batch", std::to_string(shape.global_batch) + " = " + std::to_string(session.world_size()) + " × " +
                           std::to_string(shape.rank_batch)},
      {"steps", std::to_string(result.step)},
      {"seed", std::to_string(config.seed)},
  };
  if (result.best) {
    report.facts.emplace_back("best " + report.metric_name,
                              ScoreText(result.best->value) + " at step " + std::to_string(result.best->step));
  }
  report.single_card_samples_per_second = result.single_card;
  if (session.world_size() > 1 && simulated) {
    report.facts.emplace_back("scaling",
                              "simulated cards share the cores of this machine, so this says nothing of real ones");
  } else if (session.world_size() > 1 && !result.single_card) {
    report.facts.emplace_back("scaling", "one card alone was not measured; run the job with --devices 1 to compare");
  }
  if (result.validation) {
    report.scores = result.validation->scores;
    report.metric = MetricOf(config.data.task, result.validation->scores);
    report.examples = Examples(train_step, session, val, config);
  }
  const auto written = report::WriteReport(folder.path, report);
  if (!written.ok()) base::Log(base::Severity::kWarning, written.error().message);
  std::printf("%s\n%s/report.html and report.txt say more\n", result.outcome.c_str(), folder.path.c_str());
  if (report.metric) std::printf("%s %.6f\n", report.metric_name.c_str(), *report.metric);
  std::fflush(stdout);
}

int Train(const config::Config& config, const JobOptions& options, Session& session) {
  session.EnterPhase(Phase::kLoading);
  const bool again = IsRestart();
  const auto train = Open(config, dataset::Split::kTrain);
  const auto val = Open(config, dataset::Split::kVal);
  const auto classes = static_cast<std::int64_t>(train->classes().size());
  if (train->classes() != val->classes()) {
    throw Refusal("the train part has the classes " + base::Join(train->classes(), ", ") + ", and the val part " +
                  base::Join(val->classes(), ", ") + ". Name the classes in data.classes.");
  }
  const auto shape = config::StepShapeFor(config, session.world_size());
  if (!shape.ok()) throw Error(shape.error().message);
  if (config::StepsPerEpoch(train->size(), shape->global_batch) == 0) {
    throw Refusal(
        "the train part has " + base::Counted(train->size(), "sample") + ", and one step takes " +
        std::to_string(shape->global_batch) + " (" + std::to_string(shape->rank_batch) + " on each of " +
        base::Counted(static_cast<std::uint64_t>(session.world_size()), "card") +
        "): an epoch would have no step. Make train.batch or train.global_batch smaller, or use fewer cards.");
  }
  const std::int64_t steps = config::TotalSteps(config, train->size(), shape->global_batch);

  const config::JobFolder folder(config);
  const bool resumes = options.resume || again;
  session.OnMain("job folder", [&] {
    PrepareFolder(folder, TrainedWith(train->classes(), session.world_size(), shape->global_batch), resumes);
  });
  // A restarted rank relies on the data checks from the start of the job.
  std::vector<report::Verified> verified;
  if (!again) verified = CheckData(session, config.data, *train, *val);

  session.EnterPhase(Phase::kInit);
  std::optional<double> single_card;
  if (session.world_size() > 1 && !resumes) single_card = MeasureSingleCard(config, session, *train, *shape);
  session.Seed(config.seed);
  TrainStep train_step(config, session, classes, *shape);
  if (train_step.weights()) {
    verified.push_back(
        {"the backbone's weights were loaded", base::Counted(train_step.weights()->matched.size(), "tensor") + " of " +
                                                   config.model.weights + " matched by name"});
  }
  TrainingLoop loop(config, session, train_step, *train, *val, *shape, steps, std::move(verified));
  if (single_card) loop.set_single_card(*single_card);
  if (resumes) loop.Resume(options.resume);
  const LoopResult result = loop.Run();

  const std::vector<report::RankTimes> ranks = GatherTimes(session, result.times);
  session.EnterPhase(Phase::kFinished);
  if (session.is_main()) WriteReportOf(result, loop, train_step, session, config, folder, *shape, *train, *val, ranks);
  return result.exit_code;
}

}  // namespace

int RunJob(const config::Config& config, const JobOptions& options) {
  static TorchWarnings warnings;
  c10::WarningUtils::set_warning_handler(&warnings);
  const std::shared_ptr<Session> session = Session::FromEnvironment(OptionsOf(config));
  try {
    return Train(config, options, *session);
  } catch (const std::exception& error) {
    FailAndExit(*session, error);
  }
}

}  // namespace fulldeck::trainer
