#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/files/whole_file.h"
#include "imagery/files.h"
#include "imagery/tiff_handle.h"

namespace fulldeck::imagery {

#ifdef FULLDECK_HAS_TIFF
namespace {

// Classic TIFF ends at 4 GiB; leave room for data that grows under compression.
constexpr std::uint64_t kClassicBytes = std::uint64_t{3} << 30;
constexpr std::uint32_t kStripBytes = 1 << 18;

base::Result<void> Write(const std::string& path, const Image8& image, const std::vector<Color>* palette,
                         const GeoTags& tags) {
  FULLDECK_CHECK(image.width > 0 && image.height > 0 && image.bands > 0);
  TiffHandle handle = TiffHandle::Writing(image.values.size() > kClassicBytes);
  TIFF* tiff = handle.get();
  FULLDECK_CHECK(tiff != nullptr);
  const auto row_bytes = static_cast<std::uint32_t>(image.width) * static_cast<std::uint32_t>(image.bands);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, static_cast<std::uint32_t>(image.width));
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, static_cast<std::uint32_t>(image.height));
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, image.bands);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, COMPRESSION_ADOBE_DEFLATE);
  TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, std::max(1U, kStripBytes / row_bytes));
  const bool colors = image.bands >= 3;
  if (palette != nullptr) {
    std::array<std::vector<std::uint16_t>, 3> maps;
    for (auto& map : maps) map.resize(256);
    for (std::size_t i = 0; i < std::min<std::size_t>(palette->size(), 256); ++i) {
      maps[0][i] = static_cast<std::uint16_t>((*palette)[i].red * 257);
      maps[1][i] = static_cast<std::uint16_t>((*palette)[i].green * 257);
      maps[2][i] = static_cast<std::uint16_t>((*palette)[i].blue * 257);
    }
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_PALETTE);
    TIFFSetField(tiff, TIFFTAG_COLORMAP, maps[0].data(), maps[1].data(), maps[2].data());
  } else {
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, colors ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK);
    const int extra = image.bands - (colors ? 3 : 1);
    const std::vector<std::uint16_t> kinds(static_cast<std::size_t>(extra), EXTRASAMPLE_UNSPECIFIED);
    if (extra > 0) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, static_cast<std::uint16_t>(extra), kinds.data());
  }
  SetTags(tiff, tags);
  // libtiff's parameter is not const, but with this compression it does not modify the row.
  for (int y = 0; y < image.height; ++y) {
    if (TIFFWriteScanline(tiff, const_cast<std::uint8_t*>(image.At(0, y)), static_cast<std::uint32_t>(y), 0) != 1)
      return base::Error{path + " cannot be made: " + handle.error("libtiff does not say why").message};
  }
  if (TIFFWriteDirectory(tiff) != 1)
    return base::Error{path + " cannot be made: " + handle.error("libtiff does not say why").message};
  return base::ReplaceFile(path, handle.Close());
}

}  // namespace

base::Result<void> WriteTiff(const std::string& path, const Image8& image, const GeoTags& tags) {
  return Write(path, image, nullptr, tags);
}
base::Result<void> WriteTiff(const std::string& path, const Mask& mask, const std::vector<Color>& palette,
                             const GeoTags& tags) {
  FULLDECK_CHECK(mask.bands == 1);
  return Write(path, mask, &palette, tags);
}

#else

base::Result<void> WriteTiff(const std::string& path, const Image8&, const GeoTags&) {
  return base::Error{path + " cannot be written: this build of fulldeck has no libtiff."};
}
base::Result<void> WriteTiff(const std::string& path, const Mask&, const std::vector<Color>&, const GeoTags& tags) {
  return WriteTiff(path, Image8{}, tags);
}
#endif

}  // namespace fulldeck::imagery
