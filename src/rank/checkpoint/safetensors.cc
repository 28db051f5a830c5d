#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "checkpoint/quoting.h"

namespace fulldeck::checkpoint {
namespace {

using base::Error;
using base::Result;
using Json = nlohmann::json;

struct DtypeRow {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DtypeRow, 17> kDtypes = {{{"BOOL", 1},
                                               {"U8", 1},
                                               {"I8", 1},
                                               {"F8_E5M2", 1},
                                               {"F8_E4M3", 1},
                                               {"F8_E8M0", 1},
                                               {"I16", 2},
                                               {"U16", 2},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"I32", 4},
                                               {"U32", 4},
                                               {"F32", 4},
                                               {"I64", 8},
                                               {"U64", 8},
                                               {"F64", 8},
                                               {"C64", 8}}};
constexpr std::string_view kMetadata = "__metadata__";

// Builds the entries while the JSON is parsed, so that a header of 100 MB is never held in memory as a tree.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool null() override { return Refuse("holds null"); }
  bool boolean(bool) override { return Refuse("holds true or false"); }
  bool number_integer(number_integer_t) override { return Refuse("holds a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Refuse("holds a number that is not whole"); }
  bool binary(binary_t&) override { return Refuse("holds binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 2 || list_ == List::kNone) return Refuse("holds a number where none belongs");
    if (list_ == List::kShape) {
      if (tensor_.shape.size() == kMaxDimensions) return Refuse("has too many dimensions");
      tensor_.shape.push_back(value);
    } else {
      if (offsets_ == 2) return Refuse("has more than two data_offsets");
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (in_metadata_ && depth_ == 2) {
      metadata.emplace(member_, std::move(value));
      return true;
    }
    if (depth_ != 2 || in_metadata_ || list_ != List::kNone || member_ != "dtype")
      return Refuse("holds a text where none belongs");
    const auto dtype = ParseDtype(value);
    if (!dtype) return Refuse("has the type " + Quoted(value) + ", which is not known here");
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (++depth_ > 2 || list_ != List::kNone) return Refuse("holds an object where none belongs");
    if (depth_ == 2) {
      in_metadata_ = name_ == kMetadata;
      members_.clear();
      tensor_ = TensorEntry{name_};
      offsets_ = 0;
    }
    return true;
  }

  bool key(string_t& value) override {
    if (depth_ == 1) {
      name_ = std::move(value);
      if (!names_.insert(name_).second) return Refuse("stands twice");
      return true;
    }
    member_ = std::move(value);
    if (!members_.insert(member_).second) return Refuse("has " + Quoted(member_) + " twice");
    if (!in_metadata_ && member_ != "dtype" && member_ != "shape" && member_ != "data_offsets")
      return Refuse("has the unknown member " + Quoted(member_));
    return true;
  }

  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) {
      if (members_.size() != 3) return Refuse("lacks one of dtype, shape and data_offsets");
      tensors.push_back(std::move(tensor_));
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ != List::kNone || member_ == "dtype")
      return Refuse("holds a list where none belongs");
    list_ = member_ == "shape" ? List::kShape : List::kOffsets;
    return true;
  }

  bool end_array() override {
    if (list_ == List::kOffsets && offsets_ != 2) return Refuse("has no two data_offsets");
    list_ = List::kNone;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem = "the header is not JSON at its byte " + std::to_string(position) + ".";
    return false;
  }

 private:
  enum class List { kNone, kShape, kOffsets };

  bool Refuse(const std::string& why) {
    problem = (depth_ == 0 ? "the header " : Quoted(name_) + " ") + why + ".";
    return false;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  List list_ = List::kNone;
  int offsets_ = 0;
  std::string name_;
  std::string member_;
  std::unordered_set<std::string> names_;
  std::set<std::string> members_;
  TensorEntry tensor_;
};

Result<void> CheckPlaces(std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t expected = 0;
  for (const TensorEntry& tensor : tensors) {
    const std::string name = "tensor " + Quoted(tensor.name);
    if (tensor.begin != expected || tensor.end < tensor.begin)
      return Error{name + " has bytes " + std::to_string(tensor.begin) + " to " + std::to_string(tensor.end) +
                       " where the one before ends at " + std::to_string(expected) + ": a hole or an overlap.",
                   0};
    if (TensorBytes(tensor.dtype, tensor.shape) != tensor.bytes())
      return Error{
          name + " has " + std::to_string(tensor.bytes()) + " bytes, which is not what its shape and type need.", 0};
    if (tensor.end > data_bytes)
      return Error{name + " ends at byte " + std::to_string(tensor.end) + " of the data, of which there are " +
                       std::to_string(data_bytes) + ": the file is cut short.",
                   0};
    expected = tensor.end;
  }
  if (expected != data_bytes)
    return Error{"the tensors end at byte " + std::to_string(expected) + " of the data, of which there are " +
                     std::to_string(data_bytes) + ".",
                 0};
  return {};
}

}  // namespace

std::string_view NameOf(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}

std::size_t BytesOf(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].bytes;
}

std::optional<Dtype> ParseDtype(std::string_view name) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> TensorBytes(Dtype dtype, const std::vector<std::uint64_t>& shape) {
  std::uint64_t bytes = BytesOf(dtype);
  for (const std::uint64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<std::uint64_t> ParseHeaderLength(std::string_view first_eight, std::uint64_t file_bytes) {
  if (first_eight.size() < 8 || file_bytes < 8)
    return Error{"the file has " + std::to_string(file_bytes) + " bytes, too few for a safetensors header.", 0};
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(first_eight[i]);
  if (length > kMaxHeaderBytes)
    return Error{"the header claims " + std::to_string(length) + " bytes; more than " +
                     std::to_string(kMaxHeaderBytes) + " are not allowed. This is no safetensors file.",
                 0};
  if (length > file_bytes - 8)
    return Error{"the header claims " + std::to_string(length) + " bytes and the file ends before: it is cut short.",
                 0};
  return length;
}

Result<SafetensorsHeader> ParseHeader(std::string_view json, std::uint64_t file_bytes) {
  if (json.empty() || json.front() != '{') return Error{"the header does not begin with '{'.", 0};
  if (json.size() > kMaxHeaderBytes || json.size() + 8 > file_bytes) return Error{"the header is too long.", 0};
  HeaderReader reader;
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
    return Error{reader.problem.empty() ? "the header is not JSON." : reader.problem, 0};
  }
  SafetensorsHeader header{std::move(reader.tensors), std::move(reader.metadata), json.size() + 8};
  if (auto places = CheckPlaces(header.tensors, file_bytes - header.data_begin); !places) return places.error();
  return header;
}

Result<std::string> FormatHeader(std::vector<TensorEntry>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  std::string json = "{";
  if (!metadata.empty()) {
    json += quoted(std::string(kMetadata)) + ":{";
    for (const auto& [key, value] : metadata) {
      if (!IsUtf8(key) || !IsUtf8(value)) return Error{"the metadata " + Quoted(key) + " is not UTF-8.", 0};
      if (json.back() != '{') json += ',';
      json += quoted(key) + ":" + quoted(value);
    }
    json += "}";
  }
  std::unordered_set<std::string_view> names;
  std::uint64_t place = 0;
  for (TensorEntry& tensor : tensors) {
    if (!IsUtf8(tensor.name)) return Error{"the name " + Quoted(tensor.name) + " of a tensor is not UTF-8.", 0};
    if (tensor.name == kMetadata || !names.insert(tensor.name).second)
      return Error{"two tensors cannot both be named " + Quoted(tensor.name) + ".", 0};
    const auto bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes || __builtin_add_overflow(place, *bytes, &tensor.end) || tensor.shape.size() > kMaxDimensions)
      return Error{"tensor " + Quoted(tensor.name) + " is too large.", 0};
    tensor.begin = place;
    place = tensor.end;
    if (json.back() != '{') json += ',';
    json += quoted(tensor.name) + ":{\"dtype\":\"" + std::string(NameOf(tensor.dtype)) + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i != 0) json += ',';
      json += std::to_string(tensor.shape[i]);
    }
    json += "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," + std::to_string(tensor.end) + "]}";
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeaderBytes)
    return Error{"the header would have " + std::to_string(json.size()) + " bytes; safetensors allows " +
                     std::to_string(kMaxHeaderBytes) + ". Put the tensors into several parts.",
                 0};
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 255);
  return length + json;
}

}  // namespace fulldeck::checkpoint
