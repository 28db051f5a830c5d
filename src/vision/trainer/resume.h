// What the ranks know of a job that goes on, and the config does not tell: the classes that were found in the data, the
// cards. (What changed in the config itself, `fulldeck train` compares before a rank starts.) Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::trainer {

// What is kept in the job's folder to be compared, a line each: "classes = building, road".
std::string TrainedWith(const std::vector<std::string>& classes, int cards, std::int64_t global_batch);

struct Changes {
  std::string refusal;               // not empty: the checkpoints do not fit
  std::vector<std::string> changed;  // "cards: 8 before, 4 now"
};
Changes CompareForResume(const std::string& saved, const std::string& now);

}  // namespace fulldeck::trainer
