// Image files: PNG, JPEG and TIFF (strips or tiles, 8 or 16 bits or float, any number of bands, color maps as indices
// for masks), told apart by their first bytes, not by their names. Nothing of a file is believed before it is checked;
// what cannot be read is an error that names the file and says what is wrong with it.
//
// A build without one of the libraries (libturbojpeg, libtiff) refuses such files with that reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "imagery/image.h"

namespace fulldeck::imagery {

using AnyImage = std::variant<Image8, Image16, ImageFloat>;

// What a GeoTIFF says of where it lies, kept as it was: tag numbers with their raw values (ModelPixelScale 33550,
// ModelTiepoint 33922, ModelTransformation 34264, GeoKeyDirectory 34735, GeoDoubleParams 34736, GeoAsciiParams 34737,
// GDAL_METADATA 42112, GDAL_NODATA 42113).
struct GeoTags {
  struct Tag {
    std::uint32_t number = 0;
    std::variant<std::vector<double>, std::vector<std::uint16_t>, std::string> value;
    bool operator==(const Tag&) const = default;
  };
  std::vector<Tag> tags;
  bool operator==(const GeoTags&) const = default;
};

struct ImageInfo {
  int width = 0, height = 0, bands = 0, bits = 0;
  std::string format;  // "PNG", "JPEG", "TIFF"
};

// The bytes of an image file, for who wants several things of one: at most 4 GiB.
base::Result<std::string> ReadFile(const std::string& path);
// Color images: gray gives one band, palettes are looked up, alpha is a band of its own.
base::Result<AnyImage> ReadImage(const std::string& path);
base::Result<AnyImage> DecodeImage(std::string_view bytes, const std::string& name);
// One band of class numbers; palettes are not looked up. 16-bit values above 255 and several bands are errors.
base::Result<Mask> ReadMask(const std::string& path);
base::Result<Mask> DecodeMask(std::string_view bytes, const std::string& name);
// Without the pixels.
base::Result<ImageInfo> ReadImageInfo(std::string_view bytes, const std::string& name);
// Empty where the file has none; an error where it cannot be read.
base::Result<GeoTags> GeoTagsOf(std::string_view bytes, const std::string& name);

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// Written beside, synced and renamed: a reader sees all or nothing.
base::Result<void> WritePng(const std::string& path, const Image8& image);
base::Result<void> WritePng(const std::string& path, const Mask& mask, const std::vector<Color>& palette);
base::Result<void> WriteTiff(const std::string& path, const Image8& image, const GeoTags& tags);
base::Result<void> WriteTiff(const std::string& path, const Mask& mask, const std::vector<Color>& palette,
                             const GeoTags& tags);
// In memory, for report.html.
std::string EncodePng(const Image8& image);

}  // namespace fulldeck::imagery
