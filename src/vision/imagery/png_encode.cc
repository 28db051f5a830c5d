// libpng returns from errors by longjmp, so no frame that it may skip holds an object with a destructor.
#include <png.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/files/whole_file.h"
#include "imagery/files.h"

namespace fulldeck::imagery {
namespace {

struct PngContent {
  int width = 0, height = 0, type = 0;
  std::vector<png_const_bytep> rows;
  std::vector<png_color> palette;
};

void Append(png_structp png, png_bytep data, std::size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(data), count);
}

bool WriteAll(png_structp png, png_infop info, const PngContent& content) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's error handling
  png_set_IHDR(png, info, static_cast<png_uint_32>(content.width), static_cast<png_uint_32>(content.height), 8,
               content.type, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!content.palette.empty())
    png_set_PLTE(png, info, content.palette.data(), static_cast<int>(content.palette.size()));
  png_write_info(png, info);
  for (const png_const_bytep row : content.rows) png_write_row(png, row);
  png_write_end(png, nullptr);
  return true;
}

std::string Encode(const PngContent& content) {
  std::string bytes;
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, [](png_structp, png_const_charp) {});
  FULLDECK_CHECK(png != nullptr);
  png_infop info = png_create_info_struct(png);
  FULLDECK_CHECK(info != nullptr);
  png_set_write_fn(png, &bytes, &Append, nullptr);
  const bool written = WriteAll(png, info, content);
  png_destroy_write_struct(&png, &info);
  FULLDECK_CHECK(written);  // in memory, with contents that the caller has checked
  return bytes;
}

PngContent PngContentOf(const Image8& image, int type) {
  FULLDECK_CHECK(image.width > 0 && image.height > 0);
  PngContent content{image.width, image.height, type, {}, {}};
  for (int y = 0; y < image.height; ++y) content.rows.push_back(image.At(0, y));
  return content;
}

}  // namespace

std::string EncodePng(const Image8& image) {
  FULLDECK_CHECK(image.bands >= 1 && image.bands <= 4);
  constexpr int kTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                            PNG_COLOR_TYPE_RGB_ALPHA};
  return Encode(PngContentOf(image, kTypes[image.bands - 1]));
}

base::Result<void> WritePng(const std::string& path, const Image8& image) {
  return base::ReplaceFile(path, EncodePng(image));
}

base::Result<void> WritePng(const std::string& path, const Mask& mask, const std::vector<Color>& palette) {
  FULLDECK_CHECK(mask.bands == 1);
  PngContent content = PngContentOf(mask, PNG_COLOR_TYPE_PALETTE);
  // Labels without a color are black: a PNG whose palette is too short is invalid.
  const std::size_t labels = static_cast<std::size_t>(*std::max_element(mask.values.begin(), mask.values.end())) + 1;
  content.palette.resize(std::max(labels, std::min<std::size_t>(palette.size(), 256)));
  for (std::size_t i = 0; i < std::min(palette.size(), content.palette.size()); ++i)
    content.palette[i] = {palette[i].red, palette[i].green, palette[i].blue};
  return base::ReplaceFile(path, Encode(content));
}

}  // namespace fulldeck::imagery
