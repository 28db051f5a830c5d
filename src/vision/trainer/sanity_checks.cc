#include "trainer/sanity_checks.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <fulldeck/error.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "base/files/whole_file.h"
#include "base/hash.h"
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
namespace {

constexpr std::uint64_t kSurveyed = 64;  // samples per split
constexpr std::uint64_t kHashed = 2000;  // files per split
constexpr int kBatchesCompared = 2;
constexpr std::int64_t kDropPathSteps = 20;

std::string Listed(const std::vector<std::string>& names, std::size_t most) {
  std::vector<std::string> shown(names.begin(),
                                 names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), most)));
  std::string text = base::Join(shown, ", ");
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace

std::optional<std::string> ProblemOfRanks(const std::vector<SeenBatch>& by_rank) {
  std::map<std::uint64_t, std::size_t> rank_of_sample;
  std::map<std::uint64_t, std::size_t> rank_of_fingerprint;
  const char* const fix =
      " The ranks would learn the same thing several times over. The shares of a batch must differ: check that RANK "
      "and "
      "WORLD_SIZE are what the launcher set, and report this.";
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const std::uint64_t sample : by_rank[rank].samples) {
      const auto [found, is_new] = rank_of_sample.emplace(sample, rank);
      if (!is_new) {
        return "sample " + std::to_string(sample) + " is in the batches of rank " + std::to_string(found->second) +
               " and of rank " + std::to_string(rank) + " at the same step." + fix;
      }
    }
    if (by_rank[rank].samples.empty()) continue;
    const auto [found, is_new] = rank_of_fingerprint.emplace(by_rank[rank].fingerprint, rank);
    if (!is_new) {
      return "rank " + std::to_string(found->second) + " and rank " + std::to_string(rank) +
             " have the same batch (fingerprint " + base::FormatHash(by_rank[rank].fingerprint) +
             ") at the same step." + fix;
    }
  }
  return std::nullopt;
}

std::optional<std::string> ProblemOfEpochs(const std::vector<std::uint64_t>& before,
                                           const std::vector<std::uint64_t>& after) {
  if (before != after) return std::nullopt;
  return "an epoch began with the same " + std::to_string(after.size()) +
         " samples in the same order as the one before: the order of the samples does not change. The sampler must "
         "begin "
         "every epoch anew; report this.";
}

std::optional<std::string> ProblemOfGradients(const std::vector<std::string>& without, std::size_t parameters,
                                              std::int64_t steps) {
  if (without.empty()) return std::nullopt;
  return std::to_string(without.size()) + " of " + std::to_string(parameters) +
         " parameters that should learn got no gradient in the first " +
         (steps == 1 ? "step" : std::to_string(steps) + " steps") + ": " + Listed(without, 6) +
         ". They have no part in the loss, or all labels say the same. Look at the labels and the weights; what is not "
         "to learn is named by model.freeze.";
}

std::optional<std::string> ProblemOfLosses(const std::vector<double>& losses) {
  if (losses.size() < 2) return std::nullopt;
  const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
  if (*high - *low > 1e-6 * std::abs(*high)) return std::nullopt;
  return "the loss was " + Number(*low) + " in each of the first " + std::to_string(losses.size()) +
         " steps: nothing is learnt. Usual causes: all labels are the same, the images are constant, train.lr or "
         "train.warmup_lr is 0, everything is frozen (model.freeze).";
}

std::vector<report::Verified> CheckData(Session& session, const model_spec::DataOptions& data,
                                        const dataset::Source& train, const dataset::Source& val) {
  std::vector<report::Verified> verified;
  session.OnMain("data gates", [&] {
    const int threads = static_cast<int>(std::clamp<std::int64_t>(data.workers, 1, 8));
    std::vector<std::string> problems;
    const auto survey = [&](const dataset::Source& source, dataset::Split split, const char* name) {
      const dataset::LabelSurvey found = dataset::SurveyLabels(source, kSurveyed, threads);
      const std::vector<std::string> of_split = dataset::ProblemsOf(found, data, source.classes(), split);
      problems.insert(problems.end(), of_split.begin(), of_split.end());
      const auto classes = std::count_if(
          found.counts.begin(),
          found.counts.begin() + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(source.classes().size()),
                                                          static_cast<std::ptrdiff_t>(found.counts.size())),
          [](std::uint64_t count) { return count > 0; });
      verified.push_back({std::string("labels of the ") + name +
                              " part are classes, and not all the same; images are "
                              "not constant",
                          std::to_string(found.samples) + " of " + std::to_string(source.size()) + " samples read, " +
                              std::to_string(classes) + " of " + std::to_string(source.classes().size()) +
                              " classes seen"});
    };
    survey(train, dataset::Split::kTrain, "train");
    survey(val, dataset::Split::kVal, "val");
    if (train.Files(0).empty()) {
      verified.push_back({"train and val are made from different random numbers", "made-up tiles have no files"});
    } else if (data.overlap_allowed) {
      verified.push_back({"train and val may share files", "data.overlap_allowed"});
    } else {
      const std::vector<std::string> overlap = dataset::OverlapOf(train, val, kHashed);
      problems.insert(problems.end(), overlap.begin(), overlap.end());
      verified.push_back({"no file is in train and in val", std::to_string(train.size()) + " and " +
                                                                std::to_string(val.size()) +
                                                                " samples compared by path, inode and content"});
    }
    if (!problems.empty()) throw Refusal(base::Join(problems, "\n"));
  });
  return verified;
}

std::vector<SeenBatch> EarlyChecks::OfAllRanks(const TrainingBatch& batch) {
  std::string mine = std::to_string(batch.fingerprint);
  for (const std::uint64_t sample : batch.samples) mine += "," + std::to_string(sample);
  std::vector<SeenBatch> by_rank;
  for (const std::string& text : GatherTexts(session_.team(), "first batches", mine)) {
    SeenBatch seen;
    bool first = true;
    for (const std::string_view field : base::Split(text, ',')) {
      const auto number = base::ParseInteger<std::uint64_t>(field);
      if (!number) throw Error("another rank runs another version of fulldeck-train.");
      if (first) {
        seen.fingerprint = *number;
      } else {
        seen.samples.push_back(*number);
      }
      first = false;
    }
    by_rank.push_back(std::move(seen));
  }
  return by_rank;
}

void EarlyChecks::OnBatch(const TrainingBatch& batch) {
  const bool compare_ranks = batches_compared_ < kBatchesCompared;
  const bool compare_epochs = batch.first_of_epoch && !epochs_compared_;
  if (!compare_ranks && !compare_epochs) return;
  const std::vector<SeenBatch> by_rank = OfAllRanks(batch);
  if (compare_ranks) {
    if (const auto problem = ProblemOfRanks(by_rank)) throw Refusal(*problem);
    if (++batches_compared_ == kBatchesCompared && session_.world_size() > 1) {
      verified_.push_back({"every rank trains on samples of its own",
                           "sample numbers and fingerprints of " + std::to_string(kBatchesCompared) +
                               " batches compared over " + std::to_string(session_.world_size()) + " ranks"});
    }
  }
  if (compare_epochs) {
    std::vector<std::uint64_t> samples;
    for (const SeenBatch& seen : by_rank) samples.insert(samples.end(), seen.samples.begin(), seen.samples.end());
    // A few samples may have the same order by chance.
    if (epoch_began_with_ && samples.size() >= 8) {
      if (const auto problem = ProblemOfEpochs(*epoch_began_with_, samples)) throw Refusal(*problem);
      epochs_compared_ = true;
      verified_.push_back({"the order of the samples is another one in the next epoch",
                           "first " + std::to_string(samples.size()) + " samples of epochs " +
                               std::to_string(batch.epoch) + " and " + std::to_string(batch.epoch + 1) + " compared"});
    }
    epoch_began_with_ = std::move(samples);
  }
}

void EarlyChecks::OnGradients() {
  if (gradients_done_) return;
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor>& parameters = replicas_.parameters();
  has_gradient_.resize(parameters.size(), false);
  std::vector<at::Tensor> gradients;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (has_gradient_[i] || !parameters[i].grad().defined()) continue;
    gradients.push_back(parameters[i].grad());
    places.push_back(i);
  }
  if (!gradients.empty()) {
    // One tensor for all of them, so that the loop waits for the card only once.
    const at::Tensor norms = at::stack(at::_foreach_norm(gradients)).to(at::kCPU, at::kFloat).contiguous();
    const float* norm = norms.const_data_ptr<float>();
    // The step itself reports gradients that are not finite, with rank and element.
    for (std::size_t i = 0; i < places.size(); ++i) has_gradient_[places[i]] = norm[i] != 0;
  }
  ++gradient_steps_;
  std::vector<std::string> without;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!has_gradient_[i]) without.push_back(replicas_.parameter_names()[i]);
  }
  // Drop path sometimes drops a whole layer for all samples of a small batch.
  if (!without.empty() && uses_drop_path_ && gradient_steps_ < kDropPathSteps) return;
  if (const auto problem = ProblemOfGradients(without, parameters.size(), gradient_steps_)) throw Refusal(*problem);
  gradients_done_ = true;
  verified_.push_back(
      {"every parameter that learns gets a gradient",
       std::to_string(parameters.size()) + " parameters, after step " + std::to_string(gradient_steps_)});
}

void EarlyChecks::OnLoss(double loss) {
  losses_.push_back(loss);
  if (losses_.size() < kLosses) return;
  if (const auto problem = ProblemOfLosses(losses_)) throw Refusal(*problem);
  loss_moved_ = true;
  verified_.push_back({"the loss moves", "from " + Number(losses_.front()) + " to " + Number(losses_.back()) + " in " +
                                             std::to_string(losses_.size()) + " steps"});
}

}  // namespace fulldeck::trainer
