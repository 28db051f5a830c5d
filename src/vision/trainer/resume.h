// Compares what a resumed job trained with before, apart from its config: the classes found in the data, and the cards.
// (`fulldeck train` compares the config itself before a rank starts.) Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::trainer {

// The text kept in the job folder for the comparison, one entry per line: "classes = building, road".
std::string TrainedWith(const std::vector<std::string>& classes, int cards, std::int64_t global_batch);

struct Changes {
  std::string refusal;               // not empty: the checkpoints do not fit
  std::vector<std::string> changed;  // "cards: 8 before, 4 now"
};
Changes CompareForResume(const std::string& saved, const std::string& now);

}  // namespace fulldeck::trainer
