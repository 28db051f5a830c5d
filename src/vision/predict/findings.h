// The result for one image, as human-readable text and as JSON. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "imagery/image.h"
#include "predict/result_files.h"
#include "predict/trained_model.h"

namespace fulldeck::predict {

struct ClassShare {
  std::string name;
  std::uint64_t pixels = 0;
  double share = 0;  // of the image
};

struct ClassProbability {
  std::string name;
  double probability = 0;
};

struct Findings {
  std::string image;
  std::string failure;  // not empty: the other members are not set
  int width = 0, height = 0;
  std::vector<ClassShare> shares;  // segmentation: every class, in the model's order
  std::optional<ResultFiles> files;
  std::vector<ClassProbability> top_classes;  // classification: the most probable first
};

std::vector<ClassShare> SharesOf(const imagery::Mask& mask, const std::vector<std::string>& classes);

// The `most` most probable classes; ties go to the first.
std::vector<ClassProbability> TopK(const std::vector<float>& probabilities, const std::vector<std::string>& classes,
                                   std::size_t most);

// A table: the classes that occur, the largest first; or the top_classes.
std::string FindingsText(const Findings& findings);

// One object for the whole call.
std::string FindingsJson(const TrainedModel& model, const std::vector<Findings>& all);

}  // namespace fulldeck::predict
