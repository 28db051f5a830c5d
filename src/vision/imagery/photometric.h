// Photometric distortion as in MMSegmentation: brightness, contrast before or after colors, saturation, hue. What is
// drawn is the caller's; here is what it does. Values are cut off at black and white after each step, as there; steps
// on 8-bit values round.
#pragma once

#include <array>

#include "imagery/image.h"

namespace fulldeck::imagery {

struct Photometric {
  double brightness = 0;      // added, of 255
  double contrast_first = 1;  // factors
  double saturation = 1;
  int hue = 0;  // of 180, as OpenCV counts degrees
  double contrast_last = 1;

  bool nothing() const {
    return brightness == 0 && contrast_first == 1 && saturation == 1 && hue == 0 && contrast_last == 1;
  }
};

// Everything but the last contrast, which a table can do together with normalising. Colors (saturation, hue) are those
// of images with three bands, in the order red, green, blue; others keep theirs.
void ChangeAllButLastContrast(Image8& image, const Photometric& change);
// Values of 0 … 1; the last contrast too.
void Change(ImageFloat& image, const Photometric& change);

// 256 values after the last contrast.
std::array<std::uint8_t, 256> LastContrastTable(const Photometric& change);

}  // namespace fulldeck::imagery
