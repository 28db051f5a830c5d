// What happened in a run, as data: an id that never changes with the wording, typed fields, and the line for the
// console. Diagnoses are pure functions that return events; the launcher prints their message and appends them to
// events.jsonl (event_log.h). Tests assert ids and fields, never the message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fulldeck::events {

enum class Severity { kInfo, kWarning, kError };

// "info", "warning", "error"
const char* NameOf(Severity severity);

using Value =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

// An ordered list of named values. The names id, time, monotonic_ns, severity and message belong to the log.
class Fields {
 public:
  Fields() = default;
  Fields(std::initializer_list<std::pair<std::string, Value>> values) : values_(values) {}

  // Replaces a value of the same name.
  Fields& Set(std::string_view name, Value value);
  // Null when there is no such field.
  const Value* Find(std::string_view name) const;

  // The value, or what stands for "none": tests compare with it. A field of another type is none.
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

// Ranks and pids as a field's value.
std::vector<std::int64_t> Numbers(const std::vector<int>& values);

}  // namespace fulldeck::events
