// A trained model on a device, asked about one image at a time. Throws what torch and the runtime throw; Error for what
// a person can do something about. Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <fulldeck/team.h>

#include <vector>

#include "dinov3/vision_model.h"
#include "predict/program/torch_free_layers.h"

namespace fulldeck::predict {

class Predictor {
 public:
  // Loads the weights; an Error with every key where they do not fit the model of the config.
  Predictor(const TrainedModel& trained, const Team& team);

  // The likeliest class of every pixel, through windows. `flips`: the mean over the four flips of each.
  imagery::Mask Segment(const dataset::SampleImage& image, int window, int stride, bool flips);

  // Probabilities by class: the image resized to the size of the training, as validation does it.
  std::vector<float> Classify(const dataset::SampleImage& image, bool flips);

 private:
  at::Tensor Probabilities(const at::Tensor& images, bool flips);

  config::Data data_;
  int classes_;
  c10::Device device_;
  dinov3::VisionModel model_{nullptr};
  std::size_t windows_per_batch_;
};

}  // namespace fulldeck::predict
