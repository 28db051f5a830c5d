// One decoder per format, used only by decode.cc. The bytes may come from anywhere and are not trusted. The text of an
// error is only the reason: decode.cc puts the file's name and format in front of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "imagery/files.h"
#include "imagery/image.h"

namespace fulldeck::imagery {

enum class Values {
  kColors,   // palettes are looked up, values of fewer than 8 bits are stretched to 8
  kIndices,  // as stored
};

base::Result<AnyImage> DecodePng(std::string_view bytes, Values values);
base::Result<AnyImage> DecodePngWithLibpng(std::string_view bytes,
                                           // Never uses the fast path of png_plain.h.
                                           Values values);
base::Result<ImageInfo> ReadPngInfo(std::string_view bytes);
base::Result<AnyImage> DecodeJpeg(std::string_view bytes);
base::Result<ImageInfo> ReadJpegInfo(std::string_view bytes);
base::Result<AnyImage> DecodeTiff(std::string_view bytes, Values values);
base::Result<ImageInfo> ReadTiffInfo(std::string_view bytes);
base::Result<GeoTags> GeoTagsOfTiff(std::string_view bytes);

// Upper limit of a decoded image.
constexpr std::uint64_t kMaxDecodedBytes = std::uint64_t{4} << 30;

// Call it before allocating what a header claims: at most kMaxDecodedBytes, and (`packed`: for compressions with a
// bounded ratio) at most what the bytes of the file can hold.
base::Result<void> CheckClaim(std::uint64_t width, std::uint64_t height, std::uint64_t bands, std::uint64_t value_bytes,
                              std::uint64_t file_bytes, bool packed);

}  // namespace fulldeck::imagery
