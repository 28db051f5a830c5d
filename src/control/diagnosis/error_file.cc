#include "diagnosis/error_file.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace fulldeck::diagnosis {
namespace {

using Json = nlohmann::json;

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Seconds, integer or not, as a number or a string: torch releases have written all of these.
std::optional<double> TimeOf(const Json& object) {
  const auto found = object.find("timestamp");
  if (found == object.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  return found->is_string() ? base::ParseDecimal(found->get<std::string>()) : std::nullopt;
}

}  // namespace

std::optional<ErrorFile> ParseErrorFile(std::string_view text) {
  const Json whole = Json::parse(text, nullptr, false);
  if (!whole.is_object()) return std::nullopt;
  const auto message = whole.find("message");
  if (message == whole.end()) return std::nullopt;
  ErrorFile error;
  error.unix_seconds = TimeOf(whole);
  if (message->is_string()) {
    error.message = message->get<std::string>();
    return error;
  }
  if (!message->is_object()) return std::nullopt;
  error.message = TextOf(*message, "message");
  const auto extra = message->find("extraInfo");
  if (extra != message->end() && extra->is_object()) {
    error.call_stack = TextOf(*extra, "py_callstack");
    error.unix_seconds = TimeOf(*extra);
  }
  return error;
}

std::string FormatErrorFile(std::string_view message, std::int64_t unix_seconds) {
  const Json file = {{"message", std::string(message)}, {"timestamp", unix_seconds}};
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fulldeck::diagnosis
