// Windows of scaled images. Only what the window shows is computed: a crop of an enlarged image costs what the crop
// costs.
//
// Pixel centers are at halves, as in OpenCV: column x of the scaled image lies at (x + ½) · width / scaled_width − ½ of
// the source. Nothing is averaged when an image is made smaller (OpenCV's INTER_LINEAR, which MMSegmentation trains
// with). 8-bit results differ from exact arithmetic by at most one.
#pragma once

#include <vector>

#include "imagery/image.h"

namespace fulldeck::imagery {

// Pixels of the scaled image; lies within it.
struct Window {
  int x = 0, y = 0, width = 0, height = 0;
};

Image8 BilinearWindow(const Image8& image, int scaled_width, int scaled_height, const Window& window);
ImageFloat BilinearWindow(const ImageFloat& image, int scaled_width, int scaled_height, const Window& window);
Mask NearestWindow(const Mask& mask, int scaled_width, int scaled_height, const Window& window);

// The source columns (or rows) that `count` columns from `first` of `scaled` show: for who looks at a window of a mask
// without making it.
std::vector<int> NearestPositions(int source, int scaled, int first, int count);

}  // namespace fulldeck::imagery
