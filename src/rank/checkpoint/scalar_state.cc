#include "checkpoint/scalar_state.h"

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/quoting.h"

namespace fulldeck::checkpoint {
namespace {

using base::Error;
using base::Result;
using Json = nlohmann::json;

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::optional<std::string> FromHex(std::string_view text) {
  if (text.size() % 2 != 0 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
  return bytes;
}

Json ToJson(const Scalar& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return IsUtf8(*text) ? Json(*text) : Json{{"hex", Hex(*text)}};
  }
  if (const auto* number = std::get_if<double>(&value)) {
    if (!std::isfinite(*number)) return Json{{"double_bits", base::FormatHash(std::bit_cast<std::uint64_t>(*number))}};
    return Json(*number);
  }
  if (const auto* number = std::get_if<std::int64_t>(&value)) return Json(*number);
  return Json(*std::get_if<bool>(&value));
}

std::optional<Scalar> FromJson(const Json& json) {
  if (json.is_boolean()) return Scalar(json.get<bool>());
  if (json.is_string()) return Scalar(json.get<std::string>());
  if (json.is_number_float()) return Scalar(json.get<double>());
  if (json.is_number_unsigned()) {
    const auto number = json.get<std::uint64_t>();
    if (number > INT64_MAX) return std::nullopt;
    return Scalar(static_cast<std::int64_t>(number));
  }
  if (json.is_number_integer()) return Scalar(json.get<std::int64_t>());
  if (!json.is_object() || json.size() != 1 || !json.begin()->is_string()) return std::nullopt;
  const auto& text = json.begin()->get_ref<const std::string&>();
  if (json.begin().key() == "hex") {
    auto bytes = FromHex(text);
    return bytes ? std::optional<Scalar>(std::move(*bytes)) : std::nullopt;
  }
  if (json.begin().key() == "double_bits") {
    const auto bits = base::ParseHash(text);
    return bits ? std::optional<Scalar>(std::bit_cast<double>(*bits)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> FormatScalars(const ScalarState& state) {
  std::string text = "{";
  for (const auto& [name, value] : state) {
    if (!IsUtf8(name)) return Error{"the name " + Quoted(name) + " of a value is not UTF-8.", 0};
    text += (text.size() == 1 ? "\n" : ",\n") + Json(name).dump() + ": " + ToJson(value).dump();
  }
  text += "\n}\n";
  if (text.size() > kMaxStateBytes)
    return Error{"the values and texts of the state take " + base::FormatByteSize(text.size()) + "; at most " +
                     base::FormatByteSize(kMaxStateBytes) + " are allowed. Save large things as tensors.",
                 0};
  return text;
}

Result<ScalarState> ParseScalars(std::string_view text) {
  if (text.size() > kMaxStateBytes) return Error{"it is too long.", 0};
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(parsed.get_ref<const std::string&>()).second)
      twice = parsed.get<std::string>();
    // Valid files are not nested deeper, and destroying a tree of a million levels would overflow the stack.
    return depth <= 2;
  };
  const Json json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{"it is not a JSON object.", 0};
  if (!twice.empty()) return Error{"it has " + Quoted(twice) + " twice.", 0};
  ScalarState state;
  for (const auto& [name, value] : json.items()) {
    auto scalar = FromJson(value);
    if (!scalar) return Error{Quoted(name) + " in it is neither a number nor a text.", 0};
    state.emplace(name, std::move(*scalar));
  }
  return state;
}

}  // namespace fulldeck::checkpoint
