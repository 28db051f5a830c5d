#include "events/event.h"

#include <algorithm>

namespace fulldeck::events {

const char* NameOf(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "info";
}

Fields& Fields::Set(std::string_view name, Value value) {
  for (auto& [known, old] : values_) {
    if (known != name) continue;
    old = std::move(value);
    return *this;
  }
  values_.emplace_back(std::string(name), std::move(value));
  return *this;
}

const Value* Fields::Find(std::string_view name) const {
  const auto found =
      std::find_if(values_.begin(), values_.end(), [&](const auto& field) { return field.first == name; });
  return found == values_.end() ? nullptr : &found->second;
}

std::int64_t Fields::Int(std::string_view name, std::int64_t none) const {
  const Value* value = Find(name);
  const auto* number = value != nullptr ? std::get_if<std::int64_t>(value) : nullptr;
  return number != nullptr ? *number : none;
}

std::string Fields::Text(std::string_view name) const {
  const Value* value = Find(name);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? *text : std::string();
}

std::vector<std::int64_t> Fields::Ints(std::string_view name) const {
  const Value* value = Find(name);
  const auto* numbers = value != nullptr ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
  return numbers != nullptr ? *numbers : std::vector<std::int64_t>();
}

std::vector<std::int64_t> Numbers(const std::vector<int>& values) {
  return {values.begin(), values.end()};
}

}  // namespace fulldeck::events
