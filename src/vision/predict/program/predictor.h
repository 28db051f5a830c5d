// A trained model on a device, for one image at a time. Throws what torch and the runtime throw, and Error for what a
// user can fix. Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <fulldeck/team.h>

#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "config/read.h"
#include "dataset/augment.h"
#include "dataset/source.h"
#include "dinov3/vision_model.h"
#include "imagery/files.h"
#include "imagery/image.h"
#include "predict/findings.h"
#include "predict/mosaic.h"
#include "predict/result_files.h"
#include "predict/sliding_window.h"
#include "predict/trained_model.h"
#include "report/palette.h"

namespace fulldeck::predict {

class Predictor {
 public:
  // Loads the weights; throws an Error with every key if they do not fit the config's model.
  Predictor(const TrainedModel& trained, const Team& team);

  // The most probable class of every pixel, computed in windows. `flips`: averages over the four flips of each window.
  imagery::Mask Segment(const dataset::SampleImage& image, int window, int stride, bool flips);

  // Probabilities by class, of the image resized to the training size, as in validation.
  std::vector<float> Classify(const dataset::SampleImage& image, bool flips);

 private:
  at::Tensor Probabilities(const at::Tensor& images, bool flips);

  model_spec::DataOptions data_;
  int classes_;
  c10::Device device_;
  dinov3::VisionModel model_{nullptr};
  std::size_t windows_per_batch_;
};

}  // namespace fulldeck::predict
