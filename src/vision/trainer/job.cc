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

#include "trainer/failure.h"
#include "trainer/finish.h"
#include "trainer/gates.h"
#include "trainer/learner.h"
#include "trainer/one_card.h"
#include "trainer/progress.h"
#include "trainer/resume.h"
#include "trainer/schedule.h"
#include "trainer/stop_signal.h"
#include "trainer/torch_free_layers.h"
#include "trainer/training_loop.h"
#include "trainer/validation.h"

namespace fulldeck::trainer {
namespace {

constexpr char kKept[] = "/trained_with.txt";

SessionOptions OptionsOf(const config::Recipe& recipe) {
  SessionOptions options;
  options.backend = recipe.environment.backend;
  options.timeout = std::chrono::seconds(recipe.environment.timeout);
  options.open_files = static_cast<int>(recipe.environment.open_files);
  if (recipe.environment.threads > 0) options.threads = static_cast<int>(recipe.environment.threads);
  if (recipe.environment.cudnn_benchmark) options.cudnn_benchmark = true;
  options.memory_watermark = recipe.environment.memory_watermark;
  return options;
}

std::unique_ptr<dataset::Source> Open(const config::Recipe& recipe, dataset::Part part) {
  auto source = dataset::OpenSource(recipe.data, part, recipe.seed);
  if (!source.ok()) throw Error(source.error().message);
  return *std::move(source);
}

bool WasStartedAgain() {
  const char* const count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return count != nullptr && base::ParseInteger<int>(count).value_or(0) > 0;
}

// Torch's warnings, but for one: that a gradient lies in memory in another order than its bucket, which costs a copy of
// a few numbers and would be told by every rank.
class TorchWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Grad strides do not match bucket view strides") == std::string::npos) {
      c10::WarningHandler::process(warning);
    }
  }
};

// Rank 0 alone.
void PrepareFolder(const config::WorkFolder& folder, const std::string& trained_with, bool resumes) {
  const std::string kept = folder.path + kKept;
  if (!resumes && !folder.Checkpoints().empty()) {
    throw Refusal(base::Printable(folder.checkpoints()) + " has checkpoints already, up to " +
                  folder.Checkpoints().back() +
                  ". Add --resume to go on from there, give the job another name, or remove the folder.");
  }
  const auto saved = base::ReadWholeFile(kept, config::kLargestRecipe);
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

// What is said of the run as a whole.
void WriteReportOf(const LoopResult& result, TrainingLoop& loop, Learner& learner, Session& session,
                   const config::Recipe& recipe, const config::WorkFolder& folder, const config::StepShape& shape,
                   const dataset::Source& train, const dataset::Source& val,
                   const std::vector<report::RankTimes>& ranks) {
  report::RunReport report;
  report.title = recipe.name;
  report.outcome = result.outcome;
  report.metric_name = MetricName(recipe.data.task);
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
      {"model", recipe.model.backbone + ", " + std::to_string(learner.learning()) + " parameters learn"},
      {"samples", std::to_string(train.size()) + " to train, " + std::to_string(val.size()) + " to validate"},
      {"global batch", std::to_string(shape.global_batch) + " = " + std::to_string(session.world_size()) + " × " +
                           std::to_string(shape.rank_batch)},
      {"steps", std::to_string(result.step)},
      {"seed", std::to_string(recipe.seed)},
  };
  if (result.best) {
    report.facts.emplace_back("best " + report.metric_name,
                              ScoreText(result.best->value) + " at step " + std::to_string(result.best->step));
  }
  report.one_card_samples_per_second = result.one_card;
  if (session.world_size() > 1 && simulated) {
    report.facts.emplace_back("scaling",
                              "simulated cards share the cores of this machine, so this says nothing of real ones");
  } else if (session.world_size() > 1 && !result.one_card) {
    report.facts.emplace_back("scaling", "one card alone was not measured; run the job with --devices 1 to compare");
  }
  if (result.validation) {
    report.scores = result.validation->scores;
    report.metric = MetricOf(recipe.data.task, result.validation->scores);
    report.examples = Examples(learner, session, val, recipe);
  }
  const auto written = report::WriteReport(folder.path, report);
  if (!written.ok()) base::Log(base::Severity::kWarning, written.error().message);
  std::printf("%s\n%s/report.html and report.txt say more\n", result.outcome.c_str(), folder.path.c_str());
  if (report.metric) std::printf("%s %.6f\n", report.metric_name.c_str(), *report.metric);
  std::fflush(stdout);
}

int Train(const config::Recipe& recipe, const JobOptions& options, Session& session) {
  session.EnterPhase(Phase::kLoading);
  const bool again = WasStartedAgain();
  const auto train = Open(recipe, dataset::Part::kTrain);
  const auto val = Open(recipe, dataset::Part::kVal);
  const auto classes = static_cast<std::int64_t>(train->classes().size());
  if (train->classes() != val->classes()) {
    throw Refusal("the train part has the classes " + base::Join(train->classes(), ", ") + ", and the val part " +
                  base::Join(val->classes(), ", ") + ". Name the classes in data.classes.");
  }
  const auto shape = config::StepShapeFor(recipe, session.world_size());
  if (!shape.ok()) throw Error(shape.error().message);
  if (config::StepsOfEpoch(train->size(), shape->global_batch) == 0) {
    throw Refusal(
        "the train part has " + base::Counted(train->size(), "sample") + ", and one step takes " +
        std::to_string(shape->global_batch) + " (" + std::to_string(shape->rank_batch) + " on each of " +
        base::Counted(static_cast<std::uint64_t>(session.world_size()), "card") +
        "): an epoch would have no step. Make train.batch or train.global_batch smaller, or use fewer cards.");
  }
  const std::int64_t steps = config::StepsInAll(recipe, train->size(), shape->global_batch);

  const config::WorkFolder folder(recipe);
  const bool resumes = options.resume || again;
  session.OnMain("job folder", [&] {
    PrepareFolder(folder, TrainedWith(train->classes(), session.world_size(), shape->global_batch), resumes);
  });
  // A rank that was started again trains on what was looked at when the job began.
  std::vector<report::Verified> verified;
  if (!again) verified = CheckData(session, recipe.data, *train, *val);

  session.EnterPhase(Phase::kInit);
  std::optional<double> one_card;
  if (session.world_size() > 1 && !resumes) one_card = MeasureOneCard(recipe, session, *train, *shape);
  session.Seed(recipe.seed);
  Learner learner(recipe, session, classes, *shape);
  if (learner.weights()) {
    verified.push_back(
        {"the backbone's weights were loaded", base::Counted(learner.weights()->matched.size(), "tensor") + " of " +
                                                   recipe.model.weights + " matched by name"});
  }
  TrainingLoop loop(recipe, session, learner, *train, *val, *shape, steps, std::move(verified));
  if (one_card) loop.set_one_card(*one_card);
  if (resumes) loop.Resume(options.resume);
  const LoopResult result = loop.Run();

  const std::vector<report::RankTimes> ranks = GatherTimes(session, result.times);
  session.EnterPhase(Phase::kFinished);
  if (session.is_main()) WriteReportOf(result, loop, learner, session, recipe, folder, *shape, *train, *val, ranks);
  return result.exit_code;
}

}  // namespace

int RunJob(const config::Recipe& recipe, const JobOptions& options) {
  static TorchWarnings warnings;
  c10::WarningUtils::set_warning_handler(&warnings);
  const std::shared_ptr<Session> session = Session::FromEnvironment(OptionsOf(recipe));
  try {
    return Train(recipe, options, *session);
  } catch (const std::exception& error) {
    FailAndExit(*session, error);
  }
}

}  // namespace fulldeck::trainer
