// What a confusion matrix says: IoU, Dice, F-score and accuracy, of each class and as means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fulldeck::report {

// counts[truth · classes + prediction], pixels or samples; ignored ones are in none.
struct ConfusionMatrix {
  std::int64_t classes = 0;
  std::vector<std::int64_t> counts;
};

struct ClassScores {
  std::string name;
  std::int64_t truth = 0;  // pixels (samples) that are of this class
  // Absent: iou, dice and fscore where the class is neither in the truth nor predicted, precision where it is never
  // predicted, recall and accuracy (of its own pixels, the same number) where the truth has none of it.
  std::optional<double> iou, dice, fscore, precision, recall, accuracy;
};

struct Scores {
  std::vector<ClassScores> per_class;
  double miou = 0, mdice = 0, mfscore = 0;  // means over the classes that have one; 0 where none has
  double accuracy = 0;                      // of all pixels
  double mean_accuracy = 0;
};

// `names` may have fewer names than there are classes; the others are "class 7". The counts are classes² and not
// negative.
Scores ScoresOf(const ConfusionMatrix& matrix, const std::vector<std::string>& names);
// A table for people.
std::string ScoresText(const Scores& scores);

}  // namespace fulldeck::report
