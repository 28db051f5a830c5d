// Photometric distortion as in MMSegmentation: brightness, contrast before or after colors, saturation, hue. The caller
// draws the parameters; this applies them. Values are clamped to black and white after each step, as in MMSegmentation;
// steps on 8-bit values round.
#pragma once

#include <array>

#include "imagery/image.h"

namespace fulldeck::imagery {

struct Photometric {
  double brightness = 0;      // added, of 255
  double contrast_first = 1;  // factors
  double saturation = 1;
  int hue = 0;  // of 180, OpenCV's unit
  double contrast_last = 1;

  bool nothing() const {
    return brightness == 0 && contrast_first == 1 && saturation == 1 && hue == 0 && contrast_last == 1;
  }
};

// Everything except the last contrast, which a table can combine with the normalization. Colors (saturation, hue)
// change only in images with three bands, in the order red, green, blue.
void ChangeAllButLastContrast(Image8& image, const Photometric& change);
// Values in 0 … 1; includes the last contrast.
void Change(ImageFloat& image, const Photometric& change);

// The 256 values after the last contrast.
std::array<std::uint8_t, 256> LastContrastTable(const Photometric& change);

}  // namespace fulldeck::imagery
