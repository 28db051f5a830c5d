// The table of all config keys: for each key its member of Config, its type, its range, and its description in the
// reference. The TOML reader, --set, the resolved config, the suggestions for typos and docs/recipes.md are all driven
// by it, so a new key is added only here.
//
// Not a place for rules that involve several keys: see checks.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace fulldeck::config {

// A member that is one of several choices (an enum).
struct Choice {
  void* member = nullptr;
  int (*get)(const void* member) = nullptr;
  void (*set)(void* member, int number) = nullptr;
};

// The member of a Config that holds the value of a key; also determines the key's type.
using Slot =
    std::variant<bool*, std::int64_t*, std::uint64_t*, double*, std::string*, Choice, std::vector<std::string>*,
                 std::vector<std::int64_t>*, std::vector<double>*, std::array<double, 2>*>;

// A value as it was written, independent of the syntax: one item, or a list of items.
using Item = std::variant<bool, std::int64_t, double, std::string>;
struct Value {
  bool is_list = false;
  std::vector<Item> items;  // exactly one unless is_list
};

struct KeyRules {
  double lowest = 0, highest = 0;  // inclusive limits of a number, and of each number of a list
  const char* choices = "";        // of a choice, in the order of its values: "fp32|float32 bf16|bfloat16"
  const char* known_as = "";       // names in other programs, for suggestions: "learning_rate base_lr"
  bool fixed = false;              // must not change when a run is resumed
};

struct Key {
  const char* name;         // "train.lr"
  const char* description;  // for docs/recipes.md
  Slot (*slot)(Config&);
  KeyRules rules = {};

  // "whole number", "text", "list of numbers", "fp32, bf16 or fp16": for the reference and for messages.
  std::string TypeToString() const;
  // "0 … 1"; empty if the key has no range.
  std::string RangeToString() const;

  // Sets the value in the config, or leaves the config unchanged and returns the problem. The problem does not start
  // with the key: "must be a whole number, not the text \"ten\"".
  std::optional<std::string> Set(Config& config, const Value& value) const;
  // The value as the resolved config writes it: 0.0001, "text", [1, 2, 3].
  std::string Get(const Config& config) const;
};

// In the order of config.h.
const std::vector<Key>& Keys();
// nullptr: there is no such key.
const Key* FindKey(std::string_view name);
// Whether this is a prefix of keys, such as "data" or "data.synthetic".
bool IsTable(std::string_view name);
// The key that was probably meant: a typo, a key of another table, or another program's name for it.
std::optional<std::string> NearestKey(std::string_view name);

// The text in double quotes; characters that could break a line are escaped.
std::string Quoted(std::string_view text);

// Limits of the strings and lists of a config.
inline constexpr std::size_t kMaxStringBytes = 4096;
inline constexpr std::size_t kMaxStrings = 4096;
inline constexpr std::size_t kMaxNumbers = 64;

}  // namespace fulldeck::config
