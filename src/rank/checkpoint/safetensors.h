// The header of a safetensors file: eight bytes with its length (little-endian, at most 100,000,000), then JSON with
// the type, shape and offsets of every tensor. Parsing is strict, because headers are untrusted input. Not here: the
// data and the file system.
//
// Pure functions; thread safe.
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

// The types whose elements are whole bytes. Types of 4 and 6 bits are not supported.
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
  std::uint64_t begin = 0;  // in the data, which starts after the header
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // in the file
};

// Number of bytes of a tensor of this type and shape; nullopt if it does not fit into 64 bits.
std::optional<std::uint64_t> TensorBytes(Dtype dtype, const std::vector<std::uint64_t>& shape);

// The length of the JSON, parsed from the first eight bytes of a file of `file_bytes` bytes.
base::Result<std::uint64_t> ParseHeaderLength(std::string_view first_eight, std::uint64_t file_bytes);

// Parses the header of a file of `file_bytes` bytes from its JSON. Rejects anything except one object, unknown members,
// duplicate names, invalid offsets, sizes that do not match the shape, holes, overlaps, and data that extends beyond
// the last tensor or ends before it. The message names the tensor.
base::Result<SafetensorsHeader> ParseHeader(std::string_view json, std::uint64_t file_bytes);

// Formats the start of a file: length and JSON, padded with spaces to a multiple of eight. Assigns the tensors'
// offsets, in the given order. Fails if a name is not UTF-8, is a duplicate, or is the reserved name of the metadata.
base::Result<std::string> FormatHeader(std::vector<TensorEntry>& tensors,
                                       const std::map<std::string, std::string>& metadata);

}  // namespace fulldeck::checkpoint
