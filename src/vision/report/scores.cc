#include "report/scores.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "base/text_table.h"

namespace fulldeck::report {
namespace {

// Computes the mean of the present values.
class Mean {
 public:
  void Add(const std::optional<double>& value) {
    if (!value) return;
    sum_ += *value;
    ++count_;
  }
  double value() const { return count_ > 0 ? sum_ / count_ : 0; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

std::optional<double> Share(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.2f}", 100 * *share) : std::string(base::kAbsent);
}

}  // namespace

Scores ScoresOf(const ConfusionMatrix& matrix, const std::vector<std::string>& names) {
  const std::int64_t classes = matrix.classes;
  FULLDECK_CHECK(classes >= 0 && matrix.counts.size() == static_cast<std::size_t>(classes * classes));
  std::vector<std::int64_t> truth(classes, 0);
  std::vector<std::int64_t> predicted(classes, 0);
  std::int64_t all = 0;
  std::int64_t right = 0;
  for (std::int64_t row = 0; row < classes; ++row) {
    for (std::int64_t column = 0; column < classes; ++column) {
      const std::int64_t count = matrix.counts[row * classes + column];
      FULLDECK_CHECK(count >= 0);
      truth[row] += count;
      predicted[column] += count;
      all += count;
      if (row == column) right += count;
    }
  }

  Scores scores;
  Mean iou;
  Mean dice;
  Mean fscore;
  Mean accuracy;
  for (std::int64_t i = 0; i < classes; ++i) {
    const std::int64_t hit = matrix.counts[i * classes + i];
    ClassScores one;
    one.name = i < static_cast<std::int64_t>(names.size()) ? names[i] : fmt::format("class {}", i);
    one.truth = truth[i];
    one.iou = Share(hit, truth[i] + predicted[i] - hit);
    one.dice = Share(2 * hit, truth[i] + predicted[i]);
    // With beta = 1 the F-score equals Dice, also if precision or recall has no value.
    one.fscore = one.dice;
    one.precision = Share(hit, predicted[i]);
    one.recall = Share(hit, truth[i]);
    one.accuracy = one.recall;
    iou.Add(one.iou);
    dice.Add(one.dice);
    fscore.Add(one.fscore);
    accuracy.Add(one.accuracy);
    scores.per_class.push_back(std::move(one));
  }
  scores.miou = iou.value();
  scores.mdice = dice.value();
  scores.mfscore = fscore.value();
  scores.mean_accuracy = accuracy.value();
  scores.accuracy = Share(right, all).value_or(0);
  return scores;
}

std::string ScoresText(const Scores& scores) {
  base::TextTable table({"class", "IoU %", "Dice %", "precision %", "recall %", "share of truth %"});
  std::int64_t all = 0;
  for (const ClassScores& one : scores.per_class) all += one.truth;
  for (const ClassScores& one : scores.per_class) {
    table.AddRow({base::Printable(one.name), Percent(one.iou), Percent(one.dice), Percent(one.precision),
                  Percent(one.recall), Percent(Share(one.truth, all))});
  }
  return table.Render() + fmt::format(
                              "mean IoU {:.2f} %, mean Dice {:.2f} %, mean F-score {:.2f} %, pixels right {:.2f} %, "
                              "mean of the classes {:.2f} %\n",
                              100 * scores.miou, 100 * scores.mdice, 100 * scores.mfscore, 100 * scores.accuracy,
                              100 * scores.mean_accuracy);
}

}  // namespace fulldeck::report
