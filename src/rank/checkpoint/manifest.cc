#include "checkpoint/manifest.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/text.h"

namespace fulldeck::checkpoint {
namespace {

using base::Error;
using base::Result;
using Json = nlohmann::json;

constexpr std::string_view kFormat = "fulldeck-checkpoint";
constexpr std::string_view kTailBegin = ",\n\"manifest_hash\":\"";
constexpr std::string_view kTailEnd = "\"}\n";
constexpr std::size_t kTailBytes = kTailBegin.size() + 16 + kTailEnd.size();

std::optional<std::uint64_t> Number(const Json& object, const char* name, std::uint64_t most) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto value = found->get<std::uint64_t>();
  return value <= most ? std::optional(value) : std::nullopt;
}

std::optional<std::string> Text(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<std::uint64_t> HashIn(const Json& object, const char* name) {
  const auto text = Text(object, name);
  return text ? base::ParseHash(*text) : std::nullopt;
}

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 60;

Result<FileSum> ParseFile(const Json& json) {
  FileSum file;
  if (!json.is_object()) return Error{"a file in it is not described by an object.", 0};
  const auto name = Text(json, "name");
  if (!name || !IsFileName(*name)) return Error{"a file in it has no proper name.", 0};
  const auto bytes = Number(json, "bytes", kMaxBytes);
  const auto head_bytes = Number(json, "head_bytes", kMaxBytes);
  const auto head_hash = HashIn(json, "head_hash");
  const auto tensors = json.find("tensors");
  if (!bytes || !head_bytes || !head_hash || tensors == json.end() || !tensors->is_array())
    return Error{"what it says about " + *name + " is not complete.", 0};
  file = {*name, *bytes, *head_bytes, *head_hash, {}};
  file.tensors.reserve(tensors->size());
  std::uint64_t sum = file.head_bytes;
  for (const Json& entry : *tensors) {
    if (!entry.is_array() || entry.size() != 3 || !entry[0].is_string() || !entry[1].is_number_unsigned() ||
        !entry[2].is_string())
      return Error{"a tensor of " + *name + " in it is not described by name, bytes and hash.", 0};
    const auto hash = base::ParseHash(entry[2].get_ref<const std::string&>());
    TensorSum tensor{entry[0].get<std::string>(), entry[1].get<std::uint64_t>(), hash.value_or(0)};
    if (!hash || tensor.bytes > kMaxBytes || __builtin_add_overflow(sum, tensor.bytes, &sum))
      return Error{"a tensor of " + *name + " in it has no proper length and hash.", 0};
    file.tensors.push_back(std::move(tensor));
  }
  if (sum != file.bytes) return Error{"the lengths of the tensors of " + *name + " in it do not add up.", 0};
  return file;
}

}  // namespace

const FileSum* Manifest::Find(std::string_view name) const {
  for (const FileSum& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const FileSum& file : files) sum += file.bytes;
  return sum;
}

bool IsFileName(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 200 && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::string FormatManifest(const Manifest& manifest) {
  // Formatted by hand, with one line per tensor: a JSON tree of a million tensors would take a gigabyte.
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  std::string text = "{\"format\":\"" + std::string(kFormat) + "\",\"version\":" + std::to_string(kManifestVersion) +
                     ",\n\"step\":" + std::to_string(manifest.step) +
                     ",\"world_size\":" + std::to_string(manifest.world_size) +
                     ",\"saved_at\":" + std::to_string(manifest.saved_at);
  if (manifest.score) text += ",\"score\":" + Json(*manifest.score).dump();
  text += ",\n\"files\":[";
  for (const FileSum& file : manifest.files) {
    text += (text.back() == '[' ? "\n" : ",\n");
    text += "{\"name\":" + quoted(file.name) + ",\"bytes\":" + std::to_string(file.bytes) +
            ",\"head_bytes\":" + std::to_string(file.head_bytes) + ",\"head_hash\":\"" +
            base::FormatHash(file.head_hash) + "\",\"tensors\":[";
    for (const TensorSum& tensor : file.tensors) {
      text += (text.back() == '[' ? "\n" : ",\n");
      text += "[";
      text += quoted(tensor.name) + "," + std::to_string(tensor.bytes) + ",\"" + base::FormatHash(tensor.hash) + "\"]";
    }
    text += "]}";
  }
  text += "]";
  const std::string hash = base::FormatHash(base::HashOf(text));
  return text + std::string(kTailBegin) + hash + std::string(kTailEnd);
}

Result<Manifest> ParseManifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes) return Error{"it is too long.", 0};
  if (text.size() < kTailBytes) return Error{"it is cut short.", 0};
  const std::string_view vouched = text.substr(0, text.size() - kTailBytes);
  const std::string_view tail = text.substr(vouched.size());
  if (tail.substr(0, kTailBegin.size()) != kTailBegin || tail.substr(kTailBegin.size() + 16) != kTailEnd)
    return Error{"it does not end with its checksum: it is cut short or damaged.", 0};
  if (base::ParseHash(tail.substr(kTailBegin.size(), 16)) != base::HashOf(vouched))
    return Error{"its checksum is wrong: it is damaged.", 0};

  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || Text(json, "format") != kFormat) return Error{"it is not the manifest of a checkpoint.", 0};
  const auto version = Number(json, "version", UINT32_MAX);
  if (version != kManifestVersion)
    return Error{"it has version " + (version ? std::to_string(*version) : "?") +
                     " of the format; this program reads " + std::to_string(kManifestVersion) + ".",
                 0};
  Manifest manifest;
  const auto step = Number(json, "step", kMaxStep);
  const auto world_size = Number(json, "world_size", kMaxWorldSize);
  const auto saved_at = Number(json, "saved_at", UINT64_MAX);
  const auto files = json.find("files");
  if (!step || !world_size || *world_size == 0 || !saved_at || files == json.end() || !files->is_array())
    return Error{"it lacks step, world_size, saved_at or files.", 0};
  manifest.step = *step;
  manifest.world_size = *world_size;
  manifest.saved_at = *saved_at;
  if (const auto score = json.find("score"); score != json.end()) {
    if (!score->is_number() || !std::isfinite(score->get<double>())) return Error{"its score is not a number.", 0};
    manifest.score = score->get<double>();
  }
  std::set<std::string> names;
  for (const Json& entry : *files) {
    auto file = ParseFile(entry);
    if (!file) return file.error();
    if (!names.insert(file->name).second) return Error{"it names " + file->name + " twice.", 0};
    manifest.files.push_back(std::move(*file));
  }
  return manifest;
}

}  // namespace fulldeck::checkpoint
