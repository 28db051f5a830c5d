// Windows of scaled images. Computes only the window: a crop of an upsampled image costs as much as the crop.
//
// Pixel centers are at halves, as in OpenCV: column x of the scaled image is at (x + ½) · width / scaled_width − ½ of
// the source. Downscaling does not average (OpenCV's INTER_LINEAR, which MMSegmentation trains with). 8-bit results
// differ from exact arithmetic by at most one.
#pragma once

#include <vector>

#include "imagery/image.h"

namespace fulldeck::imagery {

// In pixels of the scaled image, within its bounds.
struct Window {
  int x = 0, y = 0, width = 0, height = 0;
};

Image8 BilinearWindow(const Image8& image, int scaled_width, int scaled_height, const Window& window);
ImageFloat BilinearWindow(const ImageFloat& image, int scaled_width, int scaled_height, const Window& window);
Mask NearestWindow(const Mask& mask, int scaled_width, int scaled_height, const Window& window);

// The source columns (or rows) of `count` columns from `first`, out of `scaled`; for reading a window of a mask without
// creating it.
std::vector<int> NearestPositions(int source, int scaled, int first, int count);

}  // namespace fulldeck::imagery
