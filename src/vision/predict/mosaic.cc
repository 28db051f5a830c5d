#include "predict/mosaic.h"

#include <algorithm>

#include "base/check.h"

namespace fulldeck::predict {

Mosaic::Mosaic(int width, int height, int classes, const WindowPlan& plan)
    : width_(width),
      height_(height),
      classes_(classes),
      window_width_(plan.width),
      window_height_(plan.height),
      sums_(static_cast<std::size_t>(plan.height) * width * classes, 0.0F),
      mask_{width, height, 1, std::vector<std::uint8_t>(static_cast<std::size_t>(width) * height)} {
  FULLDECK_CHECK(width > 0 && height > 0 && classes > 0 && classes <= 255);
}

float* Mosaic::Row(int y) {
  return sums_.data() + static_cast<std::size_t>(y % window_height_) * width_ * classes_;
}

void Mosaic::Add(const Window& window, const float* probabilities) {
  FULLDECK_CHECK(window.y >= decided_ && window.x >= 0 && window.x < width_ && window.y < height_);
  DecideRowsBefore(window.y);
  const int columns = std::min(window_width_, width_ - window.x);
  const int rows = std::min(window_height_, height_ - window.y);
  const std::size_t plane = static_cast<std::size_t>(window_width_) * window_height_;
  for (int row = 0; row < rows; ++row) {
    float* sums = Row(window.y + row) + static_cast<std::size_t>(window.x) * classes_;
    for (int number = 0; number < classes_; ++number) {
      const float* from = probabilities + number * plane + static_cast<std::size_t>(row) * window_width_;
      for (int column = 0; column < columns; ++column) sums[column * classes_ + number] += from[column];
    }
  }
}

void Mosaic::DecideRowsBefore(int y) {
  for (; decided_ < y; ++decided_) {
    float* sums = Row(decided_);
    std::uint8_t* out = mask_.At(0, decided_);
    for (int x = 0; x < width_; ++x, sums += classes_)
      out[x] = static_cast<std::uint8_t>(std::max_element(sums, sums + classes_) - sums);
    std::fill_n(Row(decided_), static_cast<std::size_t>(width_) * classes_, 0.0F);
  }
}

imagery::Mask Mosaic::Finish() {
  DecideRowsBefore(height_);
  return std::move(mask_);
}

}  // namespace fulldeck::predict
