// Combines the predictions of windows into one mask: where windows overlap, the mean of their probabilities decides.
//
// Rows that no later window covers are finished immediately, so the memory holds only one row of windows (image width ×
// window height × classes floats) and the mask, not all probabilities of the image. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "imagery/image.h"
#include "predict/sliding_window.h"

namespace fulldeck::predict {

class Mosaic {
 public:
  // At most 255 classes.
  Mosaic(int width, int height, int classes, const WindowPlan& plan);

  // `probabilities`: [classes, plan.height, plan.width], of each pixel of the window; pixels outside the image are
  // ignored. Windows must be added in the plan's order.
  void Add(const Window& window, const float* probabilities);

  // After the last window: the most probable class of each pixel; ties go to the first class.
  imagery::Mask Finish();

 private:
  float* Row(int y);  // of all classes, [width, classes]
  void DecideRowsBefore(int y);

  int width_, height_, classes_;
  int window_width_, window_height_;
  int decided_ = 0;          // rows above are in the mask
  std::vector<float> sums_;  // window_height rows, in a ring
  imagery::Mask mask_;
};

}  // namespace fulldeck::predict
