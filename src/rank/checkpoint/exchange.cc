#include "checkpoint/exchange.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace fulldeck::checkpoint {
namespace {

using Json = nlohmann::json;

const base::Error kNotOurs{"another rank sent something that is no part of a checkpoint's state.", 0};

// Binary values, not strings: CBOR's strings are UTF-8.
Json Binary(const std::string& bytes) {
  return Json::binary({bytes.begin(), bytes.end()});
}

Json Binaries(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(Binary(text));
  return list;
}

std::string Cbor(const Json& json) {
  std::string bytes;
  Json::to_cbor(json, bytes);
  return bytes;
}

Json FromCbor(std::string_view bytes) {
  return Json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
}

bool Take(const Json& object, const char* name, bool& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_boolean()) return false;
  value = found->get<bool>();
  return true;
}

bool TakeBytes(const Json& json, std::string& value) {
  if (!json.is_binary()) return false;
  value.assign(json.get_binary().begin(), json.get_binary().end());
  return true;
}

bool Take(const Json& object, const char* name, std::string& value) {
  const auto found = object.find(name);
  return found != object.end() && TakeBytes(*found, value);
}

bool Take(const Json& object, const char* name, std::vector<std::string>& values) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return false;
  for (const Json& element : *found) {
    if (!TakeBytes(element, values.emplace_back())) return false;
  }
  return true;
}

}  // namespace

std::string ToBytes(const ReadyToSave& message) {
  return Cbor({{"problem", Binary(message.problem)},
               {"started", message.started},
               {"earlier_failure", Binary(message.earlier_failure)},
               {"too_many_failures", message.too_many_failures},
               {"rank_texts", Binaries(message.rank_texts)}});
}

std::string ToBytes(const FoundFolders& message) {
  return Cbor({{"problem", Binary(message.problem)}, {"folders", Binaries(message.folders)}});
}

base::Result<ReadyToSave> ParseReadyToSave(std::string_view bytes) {
  const Json json = FromCbor(bytes);
  ReadyToSave message;
  if (!json.is_object() || !Take(json, "problem", message.problem) || !Take(json, "started", message.started) ||
      !Take(json, "earlier_failure", message.earlier_failure) ||
      !Take(json, "too_many_failures", message.too_many_failures) || !Take(json, "rank_texts", message.rank_texts))
    return kNotOurs;
  return message;
}

base::Result<FoundFolders> ParseFoundFolders(std::string_view bytes) {
  const Json json = FromCbor(bytes);
  FoundFolders message;
  if (!json.is_object() || !Take(json, "problem", message.problem) || !Take(json, "folders", message.folders))
    return kNotOurs;
  return message;
}

}  // namespace fulldeck::checkpoint
