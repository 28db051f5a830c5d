// The header of a safetensors file: eight bytes with its length (little-endian, at most 100,000,000), then JSON that
// names every tensor with type, shape and place. What is read is held to the format without mercy: a header comes from
// outside. Not here: the data, and any file system.
//
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fulldeck::checkpoint {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // of the JSON
constexpr std::size_t kMaxDimensions = 64;

// The types that take whole bytes. Those of 4 and 6 bits are not read.
enum class Dtype {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
  kC64
};
std::string_view NameOf(Dtype dtype);  // "F32"
std::optional<Dtype> ParseDtype(std::string_view name);
std::size_t BytesOf(Dtype dtype);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // in the data, which begin behind the header
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // in the file
};

// Bytes that a tensor of this type and shape has; nothing when they do not fit into 64 bits.
std::optional<std::uint64_t> TensorBytes(Dtype dtype, const std::vector<std::uint64_t>& shape);

// The length of the JSON, from the first eight bytes of a file of `file_bytes`.
base::Result<std::uint64_t> ParseHeaderLength(std::string_view first_eight, std::uint64_t file_bytes);

// The header of a file of `file_bytes` from its JSON. Refused: anything but one object, unknown members, duplicate
// names, numbers that are no offsets, sizes that do not fit the shape, holes, overlaps, and data that go on behind the
// last tensor or end before it. The message names the tensor.
base::Result<SafetensorsHeader> ParseHeader(std::string_view json, std::uint64_t file_bytes);

// The first bytes of a file: length and JSON, padded with spaces to a multiple of eight. Gives the tensors their
// places, in the order in which they come. An error where a name is not UTF-8, stands twice, or is the metadata's own.
base::Result<std::string> FormatHeader(std::vector<TensorEntry>& tensors,
                                       const std::map<std::string, std::string>& metadata);

}  // namespace fulldeck::checkpoint
