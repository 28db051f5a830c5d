#include "imagery/tiff_handle.h"

#ifdef FULLDECK_HAS_TIFF
#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/text.h"

namespace fulldeck::imagery {
namespace {

constexpr std::uint32_t kMaxTagValues = 1 << 20;
constexpr std::size_t kMaxTextBytes = 4 << 20;

struct TagKind {
  std::uint32_t number;
  TIFFDataType type;
  const char* name;
};
constexpr std::array<TagKind, 8> kTags = {{
    {33550, TIFF_DOUBLE, "ModelPixelScale"},
    {33922, TIFF_DOUBLE, "ModelTiepoint"},
    {34264, TIFF_DOUBLE, "ModelTransformation"},
    {34735, TIFF_SHORT, "GeoKeyDirectory"},
    {34736, TIFF_DOUBLE, "GeoDoubleParams"},
    {34737, TIFF_ASCII, "GeoAsciiParams"},
    {42112, TIFF_ASCII, "GDAL_METADATA"},
    {42113, TIFF_ASCII, "GDAL_NODATA"},
}};

TIFFExtendProc previous_extender = nullptr;

void AddTags(TIFF* tiff) {
  static std::array<TIFFFieldInfo, kTags.size()>* const fields = [] {
    auto* field_infos = new std::array<TIFFFieldInfo, kTags.size()>();
    for (std::size_t i = 0; i < kTags.size(); ++i) {
      const bool text = kTags[i].type == TIFF_ASCII;
      const auto count = static_cast<short>(text ? TIFF_VARIABLE : TIFF_VARIABLE2);
      (*field_infos)[i] = {kTags[i].number,
                           count,
                           count,
                           kTags[i].type,
                           FIELD_CUSTOM,
                           1,
                           static_cast<unsigned char>(text ? 0 : 1),
                           const_cast<char*>(kTags[i].name)};
    }
    return field_infos;
  }();
  TIFFMergeFieldInfo(tiff, fields->data(), static_cast<std::uint32_t>(fields->size()));
  if (previous_extender != nullptr) previous_extender(tiff);
}

// libtiff registers additional tags with one callback per process.
void RegisterTags() {
  static std::once_flag once;
  std::call_once(once, [] { previous_extender = TIFFSetTagExtender(&AddTags); });
}

}  // namespace

struct TiffHandle::Memory {
  std::string_view read;
  std::string written;
  bool writing = false;
  std::uint64_t position = 0;
  std::string first_error;
  TIFF* tiff = nullptr;

  static Memory& Of(thandle_t handle) { return *static_cast<Memory*>(handle); }
  static tmsize_t Read(thandle_t handle, void* to, tmsize_t count) {
    Memory& self = Of(handle);
    const std::string_view data = self.writing ? std::string_view(self.written) : self.read;
    if (count <= 0 || self.position >= data.size()) return 0;
    const std::size_t got =
        std::min(static_cast<std::size_t>(count), data.size() - static_cast<std::size_t>(self.position));
    std::memcpy(to, data.data() + self.position, got);
    self.position += got;
    return static_cast<tmsize_t>(got);
  }
  static tmsize_t Write(thandle_t handle, void* from, tmsize_t count) {
    Memory& self = Of(handle);
    if (!self.writing || count < 0) return 0;
    const std::uint64_t end = self.position + static_cast<std::uint64_t>(count);
    if (end > self.written.size()) self.written.resize(end);
    std::memcpy(self.written.data() + self.position, from, static_cast<std::size_t>(count));
    self.position = end;
    return count;
  }
  static toff_t Seek(thandle_t handle, toff_t offset, int whence) {
    Memory& self = Of(handle);
    const std::uint64_t end = self.writing ? self.written.size() : self.read.size();
    self.position = offset + (whence == SEEK_CUR ? self.position : whence == SEEK_END ? end : 0);
    return self.position;
  }
  static toff_t Size(thandle_t handle) {
    return Of(handle).writing ? Of(handle).written.size() : Of(handle).read.size();
  }
  static int CloseNothing(thandle_t) { return 0; }
  // libtiff reads directly from the bytes and never writes there.
  static int Map(thandle_t handle, void** base, toff_t* size) {
    Memory& self = Of(handle);
    if (self.writing) return 0;
    *base = const_cast<char*>(self.read.data());
    *size = self.read.size();
    return 1;
  }
  static void Unmap(thandle_t, void*, toff_t) {}

  __attribute__((format(printf, 2, 0))) void SetFirstError(const char* format, std::va_list arguments) {
    if (!first_error.empty()) return;
    char text[256];
    std::vsnprintf(text, sizeof text, format, arguments);
    first_error = base::Printable(text);
  }
  void Open(const char* mode) {
    RegisterTags();
#if TIFFLIB_VERSION >= 20221213
    const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                   &TIFFOpenOptionsFree);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), tmsize_t{1} << 30);
    TIFFOpenOptionsSetErrorHandlerExtR(
        options.get(),
        [](TIFF*, void* user, const char*, const char* format, std::va_list arguments) {
          static_cast<Memory*>(user)->SetFirstError(format, arguments);
          return 1;
        },
        this);
    TIFFOpenOptionsSetWarningHandlerExtR(
        options.get(), [](TIFF*, void*, const char*, const char*, std::va_list) { return 1; }, nullptr);
    tiff =
        TIFFClientOpenExt("image", mode, this, &Read, &Write, &Seek, &CloseNothing, &Size, &Map, &Unmap, options.get());
#else
    static std::once_flag once;
    std::call_once(once, [] {
      TIFFSetErrorHandler(nullptr);
      TIFFSetWarningHandler(nullptr);
    });
    tiff = TIFFClientOpen("image", mode, this, &Read, &Write, &Seek, &CloseNothing, &Size, &Map, &Unmap);
#endif
  }
};

TiffHandle::TiffHandle(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
TiffHandle::TiffHandle(TiffHandle&&) noexcept = default;
TiffHandle::~TiffHandle() {
  if (memory_ && memory_->tiff != nullptr) TIFFClose(memory_->tiff);
}

TiffHandle TiffHandle::Reading(std::string_view bytes) {
  auto memory = std::make_unique<Memory>();
  memory->read = bytes;
  memory->Open("r");
  return TiffHandle(std::move(memory));
}

TiffHandle TiffHandle::Writing(bool large) {
  auto memory = std::make_unique<Memory>();
  memory->writing = true;
  memory->Open(large ? "w8" : "w");
  return TiffHandle(std::move(memory));
}

TIFF* TiffHandle::get() const {
  return memory_->tiff;
}

base::Error TiffHandle::error(const char* otherwise) const {
  std::string why = memory_->first_error.empty() ? otherwise : memory_->first_error;
  if (why.empty() || why.back() != '.') why += '.';
  return base::Error{why};
}

std::string TiffHandle::Close() {
  if (memory_->tiff != nullptr) TIFFClose(memory_->tiff);
  memory_->tiff = nullptr;
  return memory_->first_error.empty() ? std::move(memory_->written) : std::string();
}

GeoTags TagsOf(TIFF* tiff) {
  GeoTags found;
  for (const TagKind& kind : kTags) {
    if (kind.type == TIFF_ASCII) {
      const char* text = nullptr;
      if (TIFFGetField(tiff, kind.number, &text) == 1 && text != nullptr)
        found.tags.push_back({kind.number, std::string(text, strnlen(text, kMaxTextBytes))});
      continue;
    }
    std::uint32_t count = 0;
    const void* values = nullptr;
    if (TIFFGetField(tiff, kind.number, &count, &values) != 1 || values == nullptr || count > kMaxTagValues) continue;
    if (kind.type == TIFF_DOUBLE) {
      const auto* numbers = static_cast<const double*>(values);
      found.tags.push_back({kind.number, std::vector<double>(numbers, numbers + count)});
    } else {
      const auto* numbers = static_cast<const std::uint16_t*>(values);
      found.tags.push_back({kind.number, std::vector<std::uint16_t>(numbers, numbers + count)});
    }
  }
  return found;
}

void SetTags(TIFF* tiff, const GeoTags& tags) {
  for (const GeoTags::Tag& tag : tags.tags) {
    const auto* kind =
        std::find_if(kTags.begin(), kTags.end(), [&tag](const TagKind& one) { return one.number == tag.number; });
    if (kind == kTags.end()) continue;
    if (const auto* text = std::get_if<std::string>(&tag.value); text != nullptr && kind->type == TIFF_ASCII) {
      TIFFSetField(tiff, tag.number, text->c_str());
    } else if (const auto* doubles = std::get_if<std::vector<double>>(&tag.value);
               doubles != nullptr && kind->type == TIFF_DOUBLE) {
      TIFFSetField(tiff, tag.number, static_cast<std::uint32_t>(doubles->size()), doubles->data());
    } else if (const auto* shorts = std::get_if<std::vector<std::uint16_t>>(&tag.value);
               shorts != nullptr && kind->type == TIFF_SHORT) {
      TIFFSetField(tiff, tag.number, static_cast<std::uint32_t>(shorts->size()), shorts->data());
    }
  }
}

}  // namespace fulldeck::imagery
#endif
