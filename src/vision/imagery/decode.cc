#include <algorithm>
#include <cstring>
#include <utility>

#include "base/files/whole_file.h"
#include "base/text.h"
#include "imagery/decoders.h"
#include "imagery/files.h"

namespace fulldeck::imagery {
namespace {

using namespace std::string_view_literals;

enum class Format { kPng, kJpeg, kTiff };

const char* NameOf(Format format) {
  return format == Format::kPng ? "PNG" : format == Format::kJpeg ? "JPEG" : "TIFF";
}

bool StartsWith(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

base::Result<Format> FormatOf(std::string_view bytes, const std::string& name) {
  if (StartsWith(bytes, "\x89PNG\r\n\x1a\n"sv)) return Format::kPng;
  if (StartsWith(bytes, "\xff\xd8\xff"sv)) return Format::kJpeg;
  for (const std::string_view magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (StartsWith(bytes, magic)) return Format::kTiff;
  }
  const std::string subject = base::Printable(name);
  if (bytes.empty()) return base::Error{subject + " is empty. Copy or download it again."};
  if (StartsWith(bytes, "version https://git-lfs"))
    return base::Error{subject + " is a pointer of Git LFS and not the image. Fetch the images: git lfs pull"};
  if (StartsWith(bytes, "<"))
    return base::Error{subject + " is a web page or XML and not an image: the download went wrong. Download it again."};
  return base::Error{subject + " is neither a PNG nor a JPEG nor a TIFF file, whatever its name says."};
}

base::Error Unreadable(const std::string& name, Format format, const base::Error& error) {
  return base::Error{base::Printable(name) + " is a " + NameOf(format) + " file that cannot be read: " + error.message,
                     error.system_error};
}

base::Result<AnyImage> Decode(std::string_view bytes, Format format, Values values) {
  switch (format) {
    case Format::kPng:
      return DecodePng(bytes, values);
    case Format::kJpeg:
      return DecodeJpeg(bytes);
    default:
      return DecodeTiff(bytes, values);
  }
}

}  // namespace

base::Result<void> CheckClaim(std::uint64_t width, std::uint64_t height, std::uint64_t bands, std::uint64_t value_bytes,
                              std::uint64_t file_bytes, bool packed) {
  constexpr std::uint64_t kMaxSide = std::uint64_t{1} << 24;
  constexpr std::uint64_t kMaxBands = 4096;
  // Deflate, LZW, Huffman coding and PackBits expand a byte to at most about 2700 bytes.
  constexpr std::uint64_t kMaxGrowth = 4096;
  constexpr std::uint64_t kFewBytes = 1 << 20;
  if (width == 0 || height == 0 || bands == 0) return base::Error{"it has no pixels."};
  const std::string claim = std::to_string(width) + " × " + std::to_string(height) + " pixels of " +
                            std::to_string(bands) + (bands == 1 ? " band" : " bands");
  if (width > kMaxSide || height > kMaxSide || bands > kMaxBands ||
      width * height > kMaxDecodedBytes / (bands * value_bytes)) {
    return base::Error{"it claims " + claim + ", which is more than is read (4 GiB). Cut it into tiles."};
  }
  const std::uint64_t decoded = width * height * bands * value_bytes;
  if (packed && decoded > kFewBytes && decoded / kMaxGrowth > file_bytes) {
    return base::Error{"it claims " + claim + ", which cannot be in a file of " + base::FormatByteSize(file_bytes) +
                       ". It is damaged or cut off."};
  }
  return {};
}

base::Result<AnyImage> DecodeImage(std::string_view bytes, const std::string& name) {
  const auto format = FormatOf(bytes, name);
  if (!format) return format.error();
  auto image = Decode(bytes, *format, Values::kColors);
  if (!image) return Unreadable(name, *format, image.error());
  return image;
}

base::Result<Mask> DecodeMask(std::string_view bytes, const std::string& name) {
  const auto format = FormatOf(bytes, name);
  if (!format) return format.error();
  const std::string subject = "the mask " + base::Printable(name);
  if (*format == Format::kJpeg) {
    return base::Error{subject +
                       " is a JPEG file, which does not keep class numbers as they were. Write masks as PNG or TIFF."};
  }
  auto image = Decode(bytes, *format, Values::kIndices);
  if (!image) return Unreadable(name, *format, image.error());
  const int bands = std::visit([](const auto& held) { return held.bands; }, *image);
  if (bands != 1) {
    return base::Error{subject + " has " + std::to_string(bands) +
                       " bands; a mask has one, with class numbers. Turn its colours into class numbers first."};
  }
  if (auto* mask = std::get_if<Image8>(&*image)) return std::move(*mask);
  if (std::holds_alternative<ImageFloat>(*image)) {
    return base::Error{subject +
                       " has values that are not whole numbers of 8 or 16 bits. Write class numbers as 8 bits."};
  }
  const auto& wide = std::get<Image16>(*image);
  Mask mask{wide.width, wide.height, 1, {}};
  mask.values.resize(wide.values.size());
  for (std::size_t i = 0; i < wide.values.size(); ++i) {
    if (wide.values[i] > 255) {
      return base::Error{subject + " has the value " + std::to_string(wide.values[i]) +
                         "; class numbers are 0 … 254, and 255 is for ignored pixels."};
    }
    mask.values[i] = static_cast<std::uint8_t>(wide.values[i]);
  }
  return mask;
}

base::Result<std::string> ReadFile(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{4} << 30;
  auto bytes = base::ReadWholeFile(path, kMost);
  if (!bytes && bytes.error().system_error == 0) {
    return base::Error{bytes.error().message + ", the most that is read of an image. Cut it into tiles."};
  }
  return bytes;
}

base::Result<AnyImage> ReadImage(const std::string& path) {
  const auto bytes = ReadFile(path);
  if (!bytes) return bytes.error();
  return DecodeImage(*bytes, path);
}

base::Result<Mask> ReadMask(const std::string& path) {
  const auto bytes = ReadFile(path);
  if (!bytes) return bytes.error();
  return DecodeMask(*bytes, path);
}

base::Result<ImageInfo> ReadImageInfo(std::string_view bytes, const std::string& name) {
  const auto format = FormatOf(bytes, name);
  if (!format) return format.error();
  auto head = *format == Format::kPng    ? ReadPngInfo(bytes)
              : *format == Format::kJpeg ? ReadJpegInfo(bytes)
                                         : ReadTiffInfo(bytes);
  if (!head) return Unreadable(name, *format, head.error());
  head->format = NameOf(*format);
  return head;
}

base::Result<GeoTags> GeoTagsOf(std::string_view bytes, const std::string& name) {
  const auto format = FormatOf(bytes, name);
  if (!format) return format.error();
  if (*format != Format::kTiff) return GeoTags{};
  auto tags = GeoTagsOfTiff(bytes);
  if (!tags) return Unreadable(name, *format, tags.error());
  return tags;
}

}  // namespace fulldeck::imagery
