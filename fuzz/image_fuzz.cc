#include "base/check.h"
#include "fuzz_target.h"
#include "imagery/decoders.h"
#include "imagery/files.h"
#include "imagery/png_plain.h"

// Any input is an image, or gives a printable error. PNG files that the fast path decodes must decode identically with
// libpng.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::imagery;
  const std::string_view bytes = fulldeck::fuzz::AsText(data, size);
  const auto whole = [](const auto& image) {
    FULLDECK_CHECK(image.width > 0 && image.height > 0 && image.bands > 0);
    FULLDECK_CHECK(image.values.size() == static_cast<std::size_t>(image.width) * image.height * image.bands);
  };
  const auto image = DecodeImage(bytes, "a\x1b[31m");
  if (image) {
    std::visit(whole, *image);
  } else {
    FULLDECK_CHECK(image.error().message.find('\x1b') == std::string::npos);
  }
  const auto mask = DecodeMask(bytes, "a\x1b[31m");
  if (mask) {
    whole(*mask);
    FULLDECK_CHECK(mask->bands == 1);
  } else {
    FULLDECK_CHECK(mask.error().message.find('\x1b') == std::string::npos);
  }
  if (const auto plain = DecodePlainPng(bytes)) {
    const auto slow = DecodePngWithLibpng(bytes, Values::kIndices);
    FULLDECK_CHECK(!slow || std::get<Image8>(*slow) == plain->image);
  }
  return 0;
}
