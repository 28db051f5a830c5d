// libpng returns from errors by longjmp, so no frame that it may skip holds an object with a destructor.
#include <png.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "imagery/decoders.h"
#include "imagery/png_plain.h"

namespace fulldeck::imagery {
namespace {

class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &Failed, &Ignored);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool ReadHeader() {
    if (info_ == nullptr) return Fail("there is no memory");
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's error handling
    png_set_read_fn(png_, this, &Read);
    png_set_user_limits(png_, 1U << 24, 1U << 24);
    png_set_chunk_malloc_max(png_, 8U << 20);
    png_read_info(png_, info_);
    return true;
  }
  // Afterwards, a row has `bands` values of 8 bits, or of 16 bits in host byte order.
  bool SetUp(Values values) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's error handling
    const png_byte type = png_get_color_type(png_, info_);
    if (png_get_bit_depth(png_, info_) < 8) {
      if (type == PNG_COLOR_TYPE_GRAY && values == Values::kColors) {
        png_set_expand_gray_1_2_4_to_8(png_);
      } else {
        png_set_packing(png_);
      }
    }
    if (png_get_bit_depth(png_, info_) == 16 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) png_set_swap(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool ReadRows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's error handling
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  int width() const { return static_cast<int>(png_get_image_width(png_, info_)); }
  int height() const { return static_cast<int>(png_get_image_height(png_, info_)); }
  int bits() const { return png_get_bit_depth(png_, info_); }
  int bands() const { return png_get_channels(png_, info_); }
  bool palette() const { return png_get_color_type(png_, info_) == PNG_COLOR_TYPE_PALETTE; }
  std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  // 256 colors; those that the file does not define are black.
  std::array<Color, 256> Colors() const {
    std::array<Color, 256> colors = {};
    png_colorp entries = nullptr;
    int count = 0;
    if (png_get_PLTE(png_, info_, &entries, &count) != 0) {
      for (int i = 0; i < count && i < 256; ++i)
        colors[static_cast<std::size_t>(i)] = {entries[i].red, entries[i].green, entries[i].blue};
    }
    return colors;
  }
  base::Error error() const { return base::Error{base::Printable(why_) + "."}; }

 private:
  bool Fail(const char* why) {
    std::strncpy(why_, why, sizeof why_ - 1);
    return false;
  }
  [[noreturn]] static void Failed(png_structp png, png_const_charp why) {
    static_cast<PngReader*>(png_get_error_ptr(png))->Fail(why);
    png_longjmp(png, 1);
  }
  static void Ignored(png_structp, png_const_charp) {}
  static void Read(png_structp png, png_bytep to, std::size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->rest_.size()) png_error(png, "it ends too early: it is damaged or cut off");
    std::memcpy(to, self->rest_.data(), count);
    self->rest_.remove_prefix(count);
  }

  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char why_[160] = {};
};

template <typename Value>
base::Result<Raster<Value>> ReadPixels(PngReader& reader) {
  Raster<Value> image{reader.width(), reader.height(), reader.bands(), {}};
  image.values.resize(static_cast<std::size_t>(image.width) * image.height * image.bands);
  FULLDECK_CHECK(reader.row_bytes() == static_cast<std::size_t>(image.width) * image.bands * sizeof(Value));
  std::vector<png_bytep> rows(static_cast<std::size_t>(image.height));
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = reinterpret_cast<png_bytep>(image.At(0, static_cast<int>(y)));
  if (!reader.ReadRows(rows.data())) return reader.error();
  return image;
}

Image8 ApplyPalette(const Image8& indices, const std::array<Color, 256>& colors) {
  Image8 image{indices.width, indices.height, 3, {}};
  image.values.resize(indices.values.size() * 3);
  for (std::size_t i = 0; i < indices.values.size(); ++i) {
    const Color& color = colors[indices.values[i]];
    image.values[3 * i] = color.red;
    image.values[3 * i + 1] = color.green;
    image.values[3 * i + 2] = color.blue;
  }
  return image;
}

}  // namespace

base::Result<ImageInfo> ReadPngInfo(std::string_view bytes) {
  PngReader reader(bytes);
  if (!reader.ReadHeader()) return reader.error();
  return ImageInfo{reader.width(), reader.height(), reader.palette() ? 3 : reader.bands(), reader.bits() == 16 ? 16 : 8,
                   ""};
}

base::Result<AnyImage> DecodePng(std::string_view bytes, Values values) {
  if (auto plain = DecodePlainPng(bytes)) {
    if (plain->palette && values == Values::kColors) return AnyImage(ApplyPalette(plain->image, plain->colors));
    return AnyImage(std::move(plain->image));
  }
  return DecodePngWithLibpng(bytes, values);
}

base::Result<AnyImage> DecodePngWithLibpng(std::string_view bytes, Values values) {
  PngReader reader(bytes);
  if (!reader.ReadHeader()) return reader.error();
  const bool look_up = reader.palette() && values == Values::kColors;
  const auto claim = CheckClaim(static_cast<std::uint64_t>(reader.width()), static_cast<std::uint64_t>(reader.height()),
                                look_up ? 3 : static_cast<std::uint64_t>(reader.bands()), reader.bits() == 16 ? 2 : 1,
                                bytes.size(), true);
  if (!claim) return claim.error();
  if (!reader.SetUp(values)) return reader.error();
  if (reader.bits() == 16) {
    auto wide = ReadPixels<std::uint16_t>(reader);
    if (!wide) return wide.error();
    return AnyImage(*std::move(wide));
  }
  auto image = ReadPixels<std::uint8_t>(reader);
  if (!image) return image.error();
  if (!look_up) return AnyImage(*std::move(image));
  return AnyImage(ApplyPalette(*image, reader.Colors()));
}

}  // namespace fulldeck::imagery
