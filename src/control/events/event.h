// What happened in a run, as data: an id that does not depend on the wording, typed fields, and the line for the
// console. Diagnoses are pure functions that return events; the launcher prints their message and appends them to
// events.jsonl (event_log.h). Tests check ids and fields, never the message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fulldeck::events {

enum class Severity { kInfo, kWarning, kError };

// "info", "warning" or "error".
const char* NameOf(Severity severity);

using Value =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

// An ordered list of named values. The log reserves the names id, time, monotonic_ns, severity and message.
class Fields {
 public:
  Fields() = default;
  Fields(std::initializer_list<std::pair<std::string, Value>> values) : values_(values) {}

  // Replaces a value of the same name.
  Fields& Set(std::string_view name, Value value);
  // nullptr if there is no such field.
  const Value* Find(std::string_view name) const;

  // The value; if the field is absent or has another type, `none`, "" or an empty list.
  std::int64_t Int(std::string_view name, std::int64_t none = -1) const;
  std::string Text(std::string_view name) const;
  std::vector<std::int64_t> Ints(std::string_view name) const;

  const std::vector<std::pair<std::string, Value>>& values() const { return values_; }

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

struct Event {
  std::string id;  // lower case with hyphens: "card-idle"
  Severity severity = Severity::kInfo;
  Fields fields;
  std::string message;  // one line in English, without "fulldeck:" or the severity
};

// Ranks or pids as the value of a field.
std::vector<std::int64_t> Numbers(const std::vector<int>& values);

}  // namespace fulldeck::events
