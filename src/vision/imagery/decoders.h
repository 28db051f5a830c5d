// One decoder a format, for decode.cc alone. Bytes come from anywhere; an error's text continues "FILE is a PNG file
// that cannot be read: ".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "imagery/files.h"
#include "imagery/image.h"

namespace fulldeck::imagery {

enum class Values {
  kColors,   // palettes looked up, few bits stretched to 8
  kIndices,  // as they are stored
};

base::Result<AnyImage> DecodePng(std::string_view bytes, Values values);
base::Result<AnyImage> DecodePngWithLibpng(std::string_view bytes,
                                           Values values);  // never the short way of png_plain.h
base::Result<ImageInfo> ReadPngInfo(std::string_view bytes);
base::Result<AnyImage> DecodeJpeg(std::string_view bytes);
base::Result<ImageInfo> ReadJpegInfo(std::string_view bytes);
base::Result<AnyImage> DecodeTiff(std::string_view bytes, Values values);
base::Result<ImageInfo> ReadTiffInfo(std::string_view bytes);
base::Result<GeoTags> GeoTagsOfTiff(std::string_view bytes);

// More than any image that is read, decoded.
constexpr std::uint64_t kMaxDecodedBytes = std::uint64_t{4} << 30;

// Before memory is taken for what a header claims: not more than kMaxDecodedBytes, and (`packed`: for compressions
// that cannot do better) not more than the file's bytes can hold.
base::Result<void> CheckClaim(std::uint64_t width, std::uint64_t height, std::uint64_t bands, std::uint64_t value_bytes,
                              std::uint64_t file_bytes, bool packed);

}  // namespace fulldeck::imagery
