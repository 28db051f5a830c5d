// Puts the windows' predictions together: where windows overlap, the mean of their probabilities decides.
//
// Rows that no later window can touch are decided at once, so what is held in memory is one row of windows
// (image width × window height × classes floats) and the mask, not a volume of the whole image.
// Threads: one at a time.
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

  // `probabilities`: [classes, plan.height, plan.width], of each pixel of the window; what lies outside of the image is
  // not looked at. Windows come in the plan's order.
  void Add(const Window& window, const float* probabilities);

  // After the last window: the likeliest class of each pixel; of equal ones the first.
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
