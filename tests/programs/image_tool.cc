// Lets tests in Python read and write images as the training does. Raw output: one line of text, then the values.
//
//   image_tool image FILE                "WIDTH HEIGHT BANDS u8|u16|f32", values in host byte order
//   image_tool mask FILE                 "WIDTH HEIGHT 1 u8"
//   image_tool head FILE                 "FORMAT WIDTH HEIGHT BANDS BITS"
//   image_tool copy FROM TO              an 8-bit image as PNG or TIFF (by TO's name), with FROM's georeference
//   image_tool copy-mask FROM TO         a mask with a palette
//   image_tool tile SEED PART INDEX SIDE a synthetic tile (PART: train, val): image and mask, one after the other
// An error is printed to stderr, and the exit code is 1.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "dataset/source.h"
#include "imagery/files.h"
#include "model_spec/options.h"

namespace {

using namespace fulldeck;

int Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return 1;
}

template <typename Value>
void Dump(const imagery::Raster<Value>& image) {
  const char* type = std::is_same_v<Value, float> ? "f32" : sizeof(Value) == 2 ? "u16" : "u8";
  std::printf("%d %d %d %s\n", image.width, image.height, image.bands, type);
  std::fwrite(image.values.data(), sizeof(Value), image.values.size(), stdout);
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

int Copy(const std::string& from, const std::string& to, bool mask) {
  const auto file = imagery::ReadFile(from);
  if (!file) return Fail(file.error().message);
  const auto tags = imagery::GeoTagsOf(*file, from);
  if (!tags) return Fail(tags.error().message);
  const std::vector<imagery::Color> palette = {{0, 0, 0}, {255, 0, 0}, {0, 255, 0}, {10, 20, 30}};
  if (mask) {
    const auto labels = imagery::ReadMask(from);
    if (!labels) return Fail(labels.error().message);
    const auto written = EndsWith(to, ".png") ? imagery::WritePng(to, *labels, palette)
                                              : imagery::WriteTiff(to, *labels, palette, *tags);
    return written ? 0 : Fail(written.error().message);
  }
  const auto image = imagery::ReadImage(from);
  if (!image) return Fail(image.error().message);
  const auto* bytes = std::get_if<imagery::Image8>(&*image);
  if (bytes == nullptr) return Fail(from + " is not an 8-bit image");
  const auto written = EndsWith(to, ".png") ? imagery::WritePng(to, *bytes) : imagery::WriteTiff(to, *bytes, *tags);
  return written ? 0 : Fail(written.error().message);
}

int Tile(char** arguments) {
  model_spec::DataOptions data;
  data.synthetic_size = std::strtoll(arguments[3], nullptr, 10);
  data.synthetic_train = data.synthetic_val = std::strtoll(arguments[2], nullptr, 10) + 1;
  const auto split = std::string(arguments[1]) == "train" ? dataset::Split::kTrain : dataset::Split::kVal;
  const auto source = dataset::OpenSource(data, split, std::strtoull(arguments[0], nullptr, 10));
  if (!source) return Fail(source.error().message);
  const auto sample = (*source)->Load(std::strtoull(arguments[2], nullptr, 10));
  if (!sample) return Fail(sample.error().message);
  std::visit([](const auto& image) { Dump(image); }, sample->image);
  Dump(sample->mask);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 2 ? arguments[1] : "";
  if (what == "image" && count == 3) {
    const auto image = imagery::ReadImage(arguments[2]);
    if (!image) return Fail(image.error().message);
    std::visit([](const auto& held) { Dump(held); }, *image);
    return 0;
  }
  if (what == "mask" && count == 3) {
    const auto mask = imagery::ReadMask(arguments[2]);
    if (!mask) return Fail(mask.error().message);
    Dump(*mask);
    return 0;
  }
  if (what == "head" && count == 3) {
    const auto file = imagery::ReadFile(arguments[2]);
    if (!file) return Fail(file.error().message);
    const auto head = imagery::ReadImageInfo(*file, arguments[2]);
    if (!head) return Fail(head.error().message);
    std::printf("%s %d %d %d %d\n", head->format.c_str(), head->width, head->height, head->bands, head->bits);
    return 0;
  }
  if (what == "copy" && count == 4) return Copy(arguments[2], arguments[3], false);
  if (what == "copy-mask" && count == 4) return Copy(arguments[2], arguments[3], true);
  if (what == "tile" && count == 6) return Tile(arguments + 2);
  return Fail("image_tool: what is asked for? See the head of image_tool.cc.");
}
