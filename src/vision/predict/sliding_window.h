// Where the windows lie through which a model sees an image that is larger than what it was trained on. Pure.
#pragma once

#include <vector>

namespace fulldeck::predict {

// In pixels of the image, from the left and from the top.
struct Window {
  int x = 0, y = 0;
  bool operator==(const Window&) const = default;
};

struct WindowPlan {
  // Of every window; multiples of 16. A side of the image that is shorter is padded, on the right or at the bottom.
  int width = 0, height = 0;
  // Row by row from the top, each from the left. Every pixel is in one at least, and no window sticks out of the image
  // but where it is padded.
  std::vector<Window> windows;
};

constexpr int kPatch = 16;

// `window`: a multiple of 16; `stride`: 1 … window. The last window of a row ends at the image's edge, so it may lie
// closer to the one before. An image that fits into one window is seen whole, padded to the next multiple of 16.
WindowPlan PlanWindows(int image_width, int image_height, int window, int stride);

}  // namespace fulldeck::predict
