// Reads and writes image files: PNG, JPEG and TIFF (strips or tiles, 8 or 16 bits or float, any number of bands, color
// maps as indices for masks). The format is determined by the first bytes, not by the name. All contents are validated
// before use; an error names the file and the problem.
//
// A build without one of the libraries (libturbojpeg, libtiff) rejects such files with that reason.
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

// The georeference of a GeoTIFF, unchanged: tag numbers with their raw values (ModelPixelScale 33550, ModelTiepoint
// 33922, ModelTransformation 34264, GeoKeyDirectory 34735, GeoDoubleParams 34736, GeoAsciiParams 34737, GDAL_METADATA
// 42112, GDAL_NODATA 42113).
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

// The bytes of an image file, for callers that decode it more than once; at most 4 GiB.
base::Result<std::string> ReadFile(const std::string& path);
// Color images: gray yields one band, palettes are looked up, alpha is a separate band.
base::Result<AnyImage> ReadImage(const std::string& path);
base::Result<AnyImage> DecodeImage(std::string_view bytes, const std::string& name);
// One band of class numbers; palettes are not looked up. 16-bit values above 255 and several bands are errors.
base::Result<Mask> ReadMask(const std::string& path);
base::Result<Mask> DecodeMask(std::string_view bytes, const std::string& name);
// Does not decode the pixels.
base::Result<ImageInfo> ReadImageInfo(std::string_view bytes, const std::string& name);
// Empty if the file has none; an error if it cannot be read.
base::Result<GeoTags> GeoTagsOf(std::string_view bytes, const std::string& name);

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// Writes to a temporary file, syncs and renames it: a reader sees all or nothing.
base::Result<void> WritePng(const std::string& path, const Image8& image);
base::Result<void> WritePng(const std::string& path, const Mask& mask, const std::vector<Color>& palette);
base::Result<void> WriteTiff(const std::string& path, const Image8& image, const GeoTags& tags);
base::Result<void> WriteTiff(const std::string& path, const Mask& mask, const std::vector<Color>& palette,
                             const GeoTags& tags);
// In memory, for report.html.
std::string EncodePng(const Image8& image);

}  // namespace fulldeck::imagery
