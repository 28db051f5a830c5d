// Positions of the windows in which a model sees an image that is larger than its training size. Pure.
#pragma once

#include <vector>

namespace fulldeck::predict {

// In pixels of the image, from the left and from the top.
struct Window {
  int x = 0, y = 0;
  bool operator==(const Window&) const = default;
};

struct WindowPlan {
  // Size of every window; multiples of 16. If a side of the image is shorter, it is padded on the right or at the
  // bottom.
  int width = 0, height = 0;
  // Row by row from the top, each from the left. Every pixel is in at least one window, and windows exceed the image
  // only where it is padded.
  std::vector<Window> windows;
};

constexpr int kPatch = 16;

// `window`: a multiple of 16; `stride`: 1 … window. The last window of a row ends at the image's edge, so it may be
// closer to the one before it. An image that fits into one window is one window, padded to the next multiple of 16.
WindowPlan PlanWindows(int image_width, int image_height, int window, int stride);

}  // namespace fulldeck::predict
