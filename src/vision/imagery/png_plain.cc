#include "imagery/png_plain.h"

#ifdef FULLDECK_HAS_DEFLATE
#include <libdeflate.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "imagery/decoders.h"

namespace fulldeck::imagery {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
constexpr std::size_t kHeader = 13;

struct Ends {
  void operator()(libdeflate_decompressor* inflater) const { libdeflate_free_decompressor(inflater); }
};

libdeflate_decompressor* InflaterOfThread() {
  thread_local const std::unique_ptr<libdeflate_decompressor, Ends> inflater(libdeflate_alloc_decompressor());
  return inflater.get();
}

std::uint32_t Word(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word = word << 8 | static_cast<unsigned char>(bytes[at + i]);
  return word;
}

// One chunk with a valid checksum: its name and its data.
struct Chunk {
  std::string_view name, data;
};

std::optional<Chunk> TakeChunk(std::string_view& rest) {
  if (rest.size() < 12) return std::nullopt;
  const std::uint32_t length = Word(rest, 0);
  if (length > rest.size() - 12) return std::nullopt;
  const Chunk chunk{rest.substr(4, 4), rest.substr(8, length)};
  const bool critical = (chunk.name[0] & 0x20) == 0;
  if (critical && libdeflate_crc32(0, rest.data() + 4, length + 4) != Word(rest, 8 + length)) return std::nullopt;
  rest.remove_prefix(12 + static_cast<std::size_t>(length));
  return chunk;
}

using Four = std::int16_t __attribute__((vector_size(8)));

Four Magnitude(Four value) {
  const Four negative = value < 0;
  return (value ^ negative) - negative;
}

// The Paeth predictor: the neighbor (left, above, above left) nearest to left + above − above left, for all channels at
// the same time.
template <int kBands>
void UndoPaeth(const std::uint8_t* from, const std::uint8_t* above, std::size_t count, std::uint8_t* to) {
  Four left = {};
  Four corner = {};
  for (std::size_t at = 0; at < count; at += kBands) {
    Four up = {};
    Four added = {};
    for (int i = 0; i < kBands; ++i) {
      up[i] = above[at + static_cast<std::size_t>(i)];
      added[i] = from[at + static_cast<std::size_t>(i)];
    }
    const Four to_left = Magnitude(up - corner);
    const Four to_up = Magnitude(left - corner);
    const Four to_corner = Magnitude(left + up - corner - corner);
    const Four take_left = (to_left <= to_up) & (to_left <= to_corner);
    const Four take_up = ~take_left & (to_up <= to_corner);
    const Four near = (left & take_left) | (up & take_up) | (corner & ~take_left & ~take_up);
    left = (near + added) & 255;
    corner = up;
    for (int i = 0; i < kBands; ++i) to[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(left[i]);
  }
}

// `above` is a row of zeros for the first row.
template <int kBands>
bool Unfilter(int filter, const std::uint8_t* from, const std::uint8_t* above, std::size_t count, std::uint8_t* to) {
  unsigned left[kBands] = {};
  switch (filter) {
    case 0:
      std::memcpy(to, from, count);
      return true;
    case 1:
      for (std::size_t at = 0; at < count; at += kBands) {
        for (std::size_t i = 0; i < kBands; ++i) {
          left[i] += from[at + i];
          to[at + i] = static_cast<std::uint8_t>(left[i]);
        }
      }
      return true;
    case 2:
      for (std::size_t at = 0; at < count; ++at) to[at] = static_cast<std::uint8_t>(from[at] + above[at]);
      return true;
    case 3:
      for (std::size_t at = 0; at < count; at += kBands) {
        for (std::size_t i = 0; i < kBands; ++i) {
          left[i] = (from[at + i] + ((left[i] + above[at + i]) >> 1)) & 255;
          to[at + i] = static_cast<std::uint8_t>(left[i]);
        }
      }
      return true;
    case 4:
      UndoPaeth<kBands>(from, above, count, to);
      return true;
    default:
      return false;
  }
}

template <int kBands>
bool UnfilterRows(const std::uint8_t* filtered, Image8& image) {
  const std::size_t count = static_cast<std::size_t>(image.width) * kBands;
  const std::vector<std::uint8_t> zeros(count);
  const std::uint8_t* above = zeros.data();
  for (int y = 0; y < image.height; ++y, filtered += count + 1) {
    std::uint8_t* row = image.At(0, y);
    if (!Unfilter<kBands>(filtered[0], filtered + 1, above, count, row)) return false;
    above = row;
  }
  return true;
}

}  // namespace

std::optional<PlainPng> DecodePlainPng(std::string_view bytes) {
  if (bytes.substr(0, kSignature.size()) != kSignature) return std::nullopt;
  std::string_view rest = bytes.substr(kSignature.size());
  const auto header = TakeChunk(rest);
  if (!header || header->name != "IHDR" || header->data.size() != kHeader) return std::nullopt;
  const std::uint32_t width = Word(header->data, 0);
  const std::uint32_t height = Word(header->data, 4);
  constexpr int kBandsOfType[] = {1, 0, 3, 1, 2, 0, 4};
  const auto type = static_cast<unsigned char>(header->data[9]);
  const bool plain = header->data[8] == 8 && type <= 6 && kBandsOfType[type] != 0 &&
                     header->data.substr(10) == std::string_view("\0\0\0", 3);
  if (!plain) return std::nullopt;
  PlainPng png;
  png.palette = type == 3;
  png.image = {static_cast<int>(width), static_cast<int>(height), kBandsOfType[type], {}};
  const auto bands = static_cast<std::uint64_t>(png.image.bands);
  if (!CheckClaim(width, height, png.palette ? 3 : bands, 1, bytes.size(), true)) return std::nullopt;

  std::string_view packed;
  std::string joined;
  bool has_colors = false;
  while (true) {
    const auto chunk = TakeChunk(rest);
    if (!chunk) return std::nullopt;
    if (chunk->name == "IEND") break;
    if (chunk->name == "PLTE") {
      if (!packed.empty() || chunk->data.size() % 3 != 0 || chunk->data.size() > 768) return std::nullopt;
      for (std::size_t i = 0; i < chunk->data.size() / 3; ++i) {
        const auto at = [&chunk, i](std::size_t band) { return static_cast<std::uint8_t>(chunk->data[3 * i + band]); };
        png.colors[i] = {at(0), at(1), at(2)};
      }
      has_colors = true;
    } else if (chunk->name == "IDAT") {
      if (!packed.empty()) {
        if (joined.empty()) joined = packed;
        joined += chunk->data;
        packed = joined;
      } else {
        packed = chunk->data;
      }
    } else if ((chunk->name[0] & 0x20) == 0) {
      return std::nullopt;
    }
  }
  if (png.palette && !has_colors) return std::nullopt;

  const std::size_t filtered_bytes = static_cast<std::size_t>((width * bands + 1) * height);
  const std::unique_ptr<std::uint8_t, decltype(&std::free)> filtered(
      static_cast<std::uint8_t*>(std::malloc(filtered_bytes)), &std::free);
  libdeflate_decompressor* inflater = InflaterOfThread();
  if (!filtered || inflater == nullptr ||
      libdeflate_zlib_decompress(inflater, packed.data(), packed.size(), filtered.get(), filtered_bytes, nullptr) !=
          LIBDEFLATE_SUCCESS) {
    return std::nullopt;
  }
  png.image.values.resize(static_cast<std::size_t>(width * bands * height));
  const bool done = bands == 1   ? UnfilterRows<1>(filtered.get(), png.image)
                    : bands == 2 ? UnfilterRows<2>(filtered.get(), png.image)
                    : bands == 3 ? UnfilterRows<3>(filtered.get(), png.image)
                                 : UnfilterRows<4>(filtered.get(), png.image);
  if (!done) return std::nullopt;
  return png;
}

}  // namespace fulldeck::imagery

#else

namespace fulldeck::imagery {

std::optional<PlainPng> DecodePlainPng(std::string_view) {
  return std::nullopt;
}

}  // namespace fulldeck::imagery
#endif
