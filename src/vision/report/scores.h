// Scores from a confusion matrix: IoU, Dice, F-score and accuracy, per class and as means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fulldeck::report {

// counts[truth · classes + prediction], in pixels or samples, without ignored ones.
struct ConfusionMatrix {
  std::int64_t classes = 0;
  std::vector<std::int64_t> counts;
};

struct ClassScores {
  std::string name;
  std::int64_t truth = 0;  // pixels (samples) of this class
  // Absent: iou, dice and fscore if the class is neither in the truth nor predicted; precision if it is never
  // predicted; recall and accuracy (of its own pixels, the same number) if the truth does not contain it.
  std::optional<double> iou, dice, fscore, precision, recall, accuracy;
};

struct Scores {
  std::vector<ClassScores> per_class;
  // Means over the classes that have a value; 0 if none has.
  double miou = 0, mdice = 0, mfscore = 0;
  double accuracy = 0;  // of all pixels
  double mean_accuracy = 0;
};

// `names` may have fewer entries than there are classes; the others are named "class 7". The counts must have classes²
// entries, none negative.
Scores ScoresOf(const ConfusionMatrix& matrix, const std::vector<std::string>& names);
// A human-readable table.
std::string ScoresText(const Scores& scores);

}  // namespace fulldeck::report
