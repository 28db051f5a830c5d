#include "predict/sliding_window.h"

#include <algorithm>

#include "base/check.h"

namespace fulldeck::predict {
namespace {

struct Axis {
  int length = 0;  // of a window
  std::vector<int> starts;
};

Axis PlanAxis(int image, int window, int stride) {
  Axis axis;
  // Not rounded up first: INT_MAX has no next multiple.
  axis.length = image >= window ? window : (image + kPatch - 1) / kPatch * kPatch;
  const int last = std::max(image - axis.length, 0);
  for (int start = 0; start < last; start += std::min(stride, last - start)) axis.starts.push_back(start);
  axis.starts.push_back(last);
  return axis;
}

}  // namespace

WindowPlan PlanWindows(int image_width, int image_height, int window, int stride) {
  FULLDECK_CHECK(image_width > 0 && image_height > 0 && window > 0 && window % kPatch == 0 && stride > 0 &&
                 stride <= window);
  const Axis across = PlanAxis(image_width, window, stride);
  const Axis down = PlanAxis(image_height, window, stride);
  WindowPlan plan{across.length, down.length, {}};
  for (const int y : down.starts) {
    for (const int x : across.starts) plan.windows.push_back({x, y});
  }
  return plan;
}

}  // namespace fulldeck::predict
