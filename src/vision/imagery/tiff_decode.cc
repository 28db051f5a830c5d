#include "imagery/decoders.h"

#ifdef FULLDECK_HAS_TIFF
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "imagery/tiff_handle.h"

namespace fulldeck::imagery {
namespace {

constexpr std::uint64_t kMaxTileBytes = std::uint64_t{1} << 28;

// How the pixels are stored.
struct Layout {
  std::uint32_t width = 0, height = 0;
  std::uint16_t bands = 1, bits = 1, kind = SAMPLEFORMAT_UINT, planes = PLANARCONFIG_CONTIG;
  std::uint16_t colors = PHOTOMETRIC_MINISBLACK, compression = COMPRESSION_NONE;

  bool separate() const { return planes == PLANARCONFIG_SEPARATE; }
  int bands_of_plane() const { return separate() ? 1 : bands; }
  std::uint64_t value_bytes() const { return bits < 8 ? 1 : bits / 8; }
  // Size of `pixels` pixels of one plane as stored.
  std::uint64_t StoredBytes(std::uint64_t pixels) const {
    return (pixels * static_cast<std::uint64_t>(bands_of_plane()) * bits + 7) / 8;
  }
};

base::Result<Layout> LayoutOf(TIFF* tiff) {
  Layout layout;
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &layout.width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &layout.height);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &layout.bands);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &layout.bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &layout.kind);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &layout.planes);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &layout.compression);
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &layout.colors);
  if (layout.kind == SAMPLEFORMAT_VOID) layout.kind = SAMPLEFORMAT_UINT;
  const auto refuse = [](const std::string& what) {
    return base::Error{what + " are not read. Write it again as RGB or gray with 8 or 16 bits, or as float."};
  };
  const bool whole = layout.kind == SAMPLEFORMAT_UINT || layout.kind == SAMPLEFORMAT_INT;
  const bool few = layout.kind == SAMPLEFORMAT_UINT && layout.bands == 1 &&
                   (layout.bits == 1 || layout.bits == 2 || layout.bits == 4);
  const bool integers = whole && (layout.bits == 8 || layout.bits == 16 || layout.bits == 32);
  const bool floats = layout.kind == SAMPLEFORMAT_IEEEFP && (layout.bits == 32 || layout.bits == 64);
  if (!few && !integers && !floats) {
    return refuse(std::string(whole                                          ? "integers"
                              : floats || layout.kind == SAMPLEFORMAT_IEEEFP ? "floats"
                                                                             : "values") +
                  " of " + std::to_string(layout.bits) + " bits in " + std::to_string(layout.bands) + " bands");
  }
  if (layout.colors == PHOTOMETRIC_YCBCR) {
    if (layout.compression != COMPRESSION_JPEG) return refuse("YCbCr colours without JPEG compression");
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  }
  if (layout.colors == PHOTOMETRIC_CIELAB || layout.colors == PHOTOMETRIC_ICCLAB ||
      layout.colors == PHOTOMETRIC_ITULAB || layout.colors == PHOTOMETRIC_LOGL || layout.colors == PHOTOMETRIC_LOGLUV) {
    return refuse("Lab and Luv colours");
  }
  return layout;
}

base::Result<void> CheckClaimOf(const Layout& layout, std::uint64_t file_bytes) {
  const bool packed = layout.compression != COMPRESSION_ZSTD && layout.compression != COMPRESSION_LZMA &&
                      layout.compression != COMPRESSION_LERC && layout.compression != COMPRESSION_WEBP;
  return CheckClaim(layout.width, layout.height, layout.bands, layout.value_bytes(), file_bytes, packed);
}

// One decoded block, limited to the requested part of the image: rows of `stride` bytes, the first pixel at (x, y) of
// `plane`.
struct Block {
  const std::uint8_t* data = nullptr;
  std::uint64_t stride = 0;
  std::uint32_t x = 0, y = 0, width = 0, height = 0;
  int plane = 0;
};

// Decodes every strip or tile once and passes it to `take`.
template <typename Take>
base::Result<void> ForEachBlock(const TiffHandle& handle, const Layout& layout, const Take& take) {
  TIFF* tiff = handle.get();
  std::uint32_t block_width = layout.width;
  std::uint32_t block_height = layout.height;
  const bool tiled = TIFFIsTiled(tiff) != 0;
  if (tiled) {
    block_width = block_height = 0;
    TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &block_width);
    TIFFGetField(tiff, TIFFTAG_TILELENGTH, &block_height);
  } else {
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &block_height);
    block_height = std::min(block_height, layout.height);
  }
  if (block_width == 0 || block_height == 0) return base::Error{"its tiles have no size."};
  const std::uint64_t stride = layout.StoredBytes(block_width);
  if (block_height > kMaxDecodedBytes / stride || (tiled && stride * block_height > kMaxTileBytes))
    return base::Error{"its tiles are larger than is read."};
  const std::uint64_t needed = stride * block_height;
  const std::uint64_t size = tiled ? TIFFTileSize64(tiff) : TIFFStripSize64(tiff);
  if (size != needed) return base::Error{"the size of its strips or tiles does not fit its pixels."};
  std::vector<std::uint8_t> buffer(needed);
  for (int plane = 0; plane < (layout.separate() ? layout.bands : 1); ++plane) {
    for (std::uint64_t y = 0; y < layout.height; y += block_height) {
      for (std::uint64_t x = 0; x < layout.width; x += block_width) {
        const auto at_x = static_cast<std::uint32_t>(x);
        const auto at_y = static_cast<std::uint32_t>(y);
        const Block block{buffer.data(),
                          stride,
                          at_x,
                          at_y,
                          std::min(block_width, layout.width - at_x),
                          std::min(block_height, layout.height - at_y),
                          plane};
        // The last strip is only as high as the remaining rows; tiles always have their full size.
        const std::uint64_t wanted = tiled ? needed : stride * block.height;
        const tmsize_t got =
            tiled ? TIFFReadEncodedTile(tiff, TIFFComputeTile(tiff, at_x, at_y, 0, static_cast<std::uint16_t>(plane)),
                                        buffer.data(), static_cast<tmsize_t>(wanted))
                  : TIFFReadEncodedStrip(tiff, TIFFComputeStrip(tiff, at_y, static_cast<std::uint16_t>(plane)),
                                         buffer.data(), static_cast<tmsize_t>(wanted));
        if (got != static_cast<tmsize_t>(wanted))
          return handle.error("a part of it is missing: it is damaged or cut off");
        take(block);
      }
    }
  }
  return {};
}

// Reads into a raster of `Value`, from stored values of `Stored`.
template <typename Value, typename Stored>
base::Result<AnyImage> ReadValues(const TiffHandle& handle, const Layout& layout) {
  Raster<Value> image{static_cast<int>(layout.width), static_cast<int>(layout.height), layout.bands, {}};
  image.values.resize(static_cast<std::size_t>(layout.width) * layout.height * layout.bands);
  const auto read = ForEachBlock(handle, layout, [&](const Block& block) {
    const int bands = layout.bands_of_plane();
    for (std::uint32_t row = 0; row < block.height; ++row) {
      const std::uint8_t* from = block.data + row * block.stride;
      Value* to = image.At(static_cast<int>(block.x), static_cast<int>(block.y + row)) + block.plane;
      if (std::is_same_v<Value, Stored> && bands == layout.bands) {
        std::memcpy(to, from, static_cast<std::size_t>(block.width) * layout.bands * sizeof(Value));
        continue;
      }
      for (std::uint32_t x = 0; x < block.width; ++x, to += layout.bands) {
        for (int band = 0; band < bands; ++band, from += sizeof(Stored)) {
          Stored value;
          std::memcpy(&value, from, sizeof value);
          to[band] = static_cast<Value>(value);
        }
      }
    }
  });
  if (!read) return read.error();
  return AnyImage(std::move(image));
}

// One band of 1, 2 or 4 bits.
base::Result<AnyImage> ReadFewBits(const TiffHandle& handle, const Layout& layout) {
  Image8 image{static_cast<int>(layout.width), static_cast<int>(layout.height), 1, {}};
  image.values.resize(static_cast<std::size_t>(layout.width) * layout.height);
  const auto read = ForEachBlock(handle, layout, [&](const Block& block) {
    for (std::uint32_t row = 0; row < block.height; ++row) {
      const std::uint8_t* from = block.data + row * block.stride;
      std::uint8_t* to = image.At(static_cast<int>(block.x), static_cast<int>(block.y + row));
      for (std::uint32_t x = 0; x < block.width; ++x) {
        const std::uint32_t bit = x * layout.bits;
        to[x] = static_cast<std::uint8_t>(from[bit / 8] >> (8 - layout.bits - bit % 8) & ((1 << layout.bits) - 1));
      }
    }
  });
  if (!read) return read.error();
  return AnyImage(std::move(image));
}

base::Result<AnyImage> ReadStored(const TiffHandle& handle, const Layout& layout) {
  if (layout.bits < 8) return ReadFewBits(handle, layout);
  if (layout.kind == SAMPLEFORMAT_IEEEFP)
    return layout.bits == 32 ? ReadValues<float, float>(handle, layout) : ReadValues<float, double>(handle, layout);
  if (layout.kind == SAMPLEFORMAT_INT) {
    return layout.bits == 8    ? ReadValues<float, std::int8_t>(handle, layout)
           : layout.bits == 16 ? ReadValues<float, std::int16_t>(handle, layout)
                               : ReadValues<float, std::int32_t>(handle, layout);
  }
  return layout.bits == 8    ? ReadValues<std::uint8_t, std::uint8_t>(handle, layout)
         : layout.bits == 16 ? ReadValues<std::uint16_t, std::uint16_t>(handle, layout)
                             : ReadValues<float, std::uint32_t>(handle, layout);
}

base::Result<AnyImage> ApplyPalette(const TiffHandle& handle, const Layout& layout, const Image8& indices) {
  std::uint16_t* maps[3] = {};
  if (TIFFGetField(handle.get(), TIFFTAG_COLORMAP, &maps[0], &maps[1], &maps[2]) != 1 || maps[0] == nullptr)
    return base::Error{"its colours are indices, and it has no colour map."};
  const int entries = 1 << layout.bits;
  Image8 image{indices.width, indices.height, 3, {}};
  image.values.resize(indices.values.size() * 3);
  for (std::size_t i = 0; i < indices.values.size(); ++i) {
    for (std::size_t band = 0; band < 3; ++band) {
      const std::uint16_t* map = maps[band];
      image.values[3 * i + band] =
          map != nullptr && indices.values[i] < entries ? static_cast<std::uint8_t>(map[indices.values[i]] >> 8) : 0;
    }
  }
  return AnyImage(std::move(image));
}

// As colors: looks up color maps, stretches values of few bits, inverts if 0 is white.
base::Result<AnyImage> ToColors(const TiffHandle& handle, const Layout& layout, AnyImage stored) {
  auto* bytes = std::get_if<Image8>(&stored);
  if (layout.colors == PHOTOMETRIC_PALETTE) {
    if (bytes == nullptr || layout.bands != 1) return base::Error{"colour maps of more than 8 bits are not read."};
    return ApplyPalette(handle, layout, *bytes);
  }
  if (bytes != nullptr && layout.bits < 8) {
    const int most = (1 << layout.bits) - 1;
    for (std::uint8_t& value : bytes->values) value = static_cast<std::uint8_t>(value * 255 / most);
  }
  if (layout.colors == PHOTOMETRIC_MINISWHITE) {
    if (bytes != nullptr) {
      for (std::uint8_t& value : bytes->values) value = static_cast<std::uint8_t>(255 - value);
    } else if (auto* wide = std::get_if<Image16>(&stored)) {
      for (std::uint16_t& value : wide->values) value = static_cast<std::uint16_t>(65535 - value);
    }
  }
  return stored;
}

}  // namespace

base::Result<ImageInfo> ReadTiffInfo(std::string_view bytes) {
  const TiffHandle handle = TiffHandle::Reading(bytes);
  if (handle.get() == nullptr) return handle.error("it is damaged or cut off");
  const auto layout = LayoutOf(handle.get());
  if (!layout) return layout.error();
  if (const auto claim = CheckClaimOf(*layout, bytes.size()); !claim) return claim.error();
  return ImageInfo{static_cast<int>(layout->width), static_cast<int>(layout->height),
                   layout->colors == PHOTOMETRIC_PALETTE ? 3 : layout->bands, std::max<int>(8, layout->bits), ""};
}

base::Result<AnyImage> DecodeTiff(std::string_view bytes, Values values) {
  const TiffHandle handle = TiffHandle::Reading(bytes);
  if (handle.get() == nullptr) return handle.error("it is damaged or cut off");
  const auto layout = LayoutOf(handle.get());
  if (!layout) return layout.error();
  if (const auto claim = CheckClaimOf(*layout, bytes.size()); !claim) return claim.error();
  auto stored = ReadStored(handle, *layout);
  if (!stored || values == Values::kIndices) return stored;
  return ToColors(handle, *layout, *std::move(stored));
}

base::Result<GeoTags> GeoTagsOfTiff(std::string_view bytes) {
  const TiffHandle handle = TiffHandle::Reading(bytes);
  if (handle.get() == nullptr) return handle.error("it is damaged or cut off");
  return TagsOf(handle.get());
}

}  // namespace fulldeck::imagery

#else

namespace fulldeck::imagery {

base::Result<ImageInfo> ReadTiffInfo(std::string_view) {
  return base::Error{"this build of fulldeck has no libtiff. Install libtiff-dev and build again."};
}
base::Result<AnyImage> DecodeTiff(std::string_view bytes, Values) {
  return ReadTiffInfo(bytes).error();
}
base::Result<GeoTags> GeoTagsOfTiff(std::string_view bytes) {
  return ReadTiffInfo(bytes).error();
}

}  // namespace fulldeck::imagery
#endif
