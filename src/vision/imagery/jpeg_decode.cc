#include "imagery/decoders.h"

#ifdef FULLDECK_HAS_JPEG
#include <turbojpeg.h>

#include <memory>
#include <utility>

#include "base/text.h"

namespace fulldeck::imagery {
namespace {

struct Ends {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Handle = std::unique_ptr<void, Ends>;

struct JpegInfo {
  int width = 0, height = 0, subsampling = 0, colors = 0;
};

base::Error ErrorOf(tjhandle handle) {
  return base::Error{base::Printable(tjGetErrorStr2(handle)) + ". It is damaged or cut off."};
}

const unsigned char* DataOf(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

base::Result<JpegInfo> ReadImageInfo(tjhandle handle, std::string_view bytes) {
  if (handle == nullptr) return base::Error{"there is no memory."};
  JpegInfo head;
  if (tjDecompressHeader3(handle, DataOf(bytes), bytes.size(), &head.width, &head.height, &head.subsampling,
                          &head.colors) != 0 &&
      tjGetErrorCode(handle) != TJERR_WARNING) {
    return ErrorOf(handle);
  }
  if (head.width <= 0 || head.height <= 0) return base::Error{"it has no pixels."};
  return head;
}

int BandsOf(const JpegInfo& head) {
  return head.colors == TJCS_GRAY ? 1 : 3;
}

// Adobe's programs store inks as 255 − ink and mark the file.
bool HasAdobeMark(std::string_view bytes) {
  std::size_t at = 2;
  while (at + 4 <= bytes.size() && static_cast<unsigned char>(bytes[at]) == 0xff) {
    const auto marker = static_cast<unsigned char>(bytes[at + 1]);
    if (marker == 0xda) return false;
    const std::size_t length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[at + 2])) << 8 |
                               static_cast<unsigned char>(bytes[at + 3]);
    if (marker == 0xee && bytes.substr(at + 4, 5) == "Adobe") return true;
    at += 2 + length;
  }
  return false;
}

// Extraneous bytes between two parts of the header do not damage the image. Before a restart marker or the end (0xd0 …
// 0xd9) they are remains of damaged pixels, and every other warning means lost pixels too.
bool IsHarmless(tjhandle handle) {
  if (tjGetErrorCode(handle) != TJERR_WARNING) return false;
  constexpr std::string_view kStray = "extraneous bytes before marker 0x";
  const std::string_view warning = tjGetErrorStr2(handle);
  const std::size_t at = warning.find(kStray);
  if (at == std::string_view::npos || warning.size() < at + kStray.size() + 2) return false;
  const char* marker = warning.data() + at + kStray.size();
  return marker[0] != 'd' || marker[1] < '0' || marker[1] > '9';
}

// libjpeg reports only the last of its warnings, and a harmless one may follow lost pixels: check the first one too.
bool Decompress(tjhandle handle, std::string_view bytes, Image8& image, int layout) {
  for (const int flags : {TJFLAG_STOPONWARNING, 0}) {
    if (tjDecompress2(handle, DataOf(bytes), bytes.size(), image.values.data(), image.width, 0, image.height, layout,
                      flags) == 0) {
      return true;
    }
    if (!IsHarmless(handle)) return false;
  }
  return true;
}

}  // namespace

base::Result<ImageInfo> ReadJpegInfo(std::string_view bytes) {
  const Handle handle(tjInitDecompress());
  const auto head = ReadImageInfo(handle.get(), bytes);
  if (!head) return head.error();
  return ImageInfo{head->width, head->height, BandsOf(*head), 8, ""};
}

base::Result<AnyImage> DecodeJpeg(std::string_view bytes) {
  const Handle handle(tjInitDecompress());
  const auto head = ReadImageInfo(handle.get(), bytes);
  if (!head) return head.error();
  const bool inks = head->colors == TJCS_CMYK || head->colors == TJCS_YCCK;
  const int stored = inks ? 4 : BandsOf(*head);
  const auto claim = CheckClaim(static_cast<std::uint64_t>(head->width), static_cast<std::uint64_t>(head->height),
                                static_cast<std::uint64_t>(stored), 1, bytes.size(), true);
  if (!claim) return claim.error();
  Image8 image{head->width, head->height, stored, {}};
  image.values.resize(static_cast<std::size_t>(image.width) * image.height * stored);
  const int layout = inks ? TJPF_CMYK : stored == 1 ? TJPF_GRAY : TJPF_RGB;
  if (!Decompress(handle.get(), bytes, image, layout)) return ErrorOf(handle.get());
  if (!inks) return AnyImage(std::move(image));
  const bool inverted = HasAdobeMark(bytes);
  Image8 colors{image.width, image.height, 3, {}};
  colors.values.resize(image.values.size() / 4 * 3);
  for (std::size_t i = 0; i < image.values.size() / 4; ++i) {
    const std::uint8_t* ink = image.values.data() + 4 * i;
    const int black = inverted ? ink[3] : 255 - ink[3];
    for (std::size_t band = 0; band < 3; ++band) {
      const int light = inverted ? ink[band] : 255 - ink[band];
      colors.values[3 * i + band] = static_cast<std::uint8_t>((light * black + 127) / 255);
    }
  }
  return AnyImage(std::move(colors));
}

}  // namespace fulldeck::imagery

#else

namespace fulldeck::imagery {

base::Result<ImageInfo> ReadJpegInfo(std::string_view) {
  return base::Error{"this build of fulldeck has no libturbojpeg. Install libturbojpeg0-dev and build again."};
}
base::Result<AnyImage> DecodeJpeg(std::string_view bytes) {
  return ReadJpegInfo(bytes).error();
}

}  // namespace fulldeck::imagery
#endif
