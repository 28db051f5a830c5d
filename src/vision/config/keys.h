// The one table of what a config can say: for every key its place in Config, its type, its range, and the description
// of the reference. The TOML file, --set, the resolved file, the suggestions for typos and docs/recipes.md all follow
// it, so a key that is added here is known everywhere.
//
// Not a place for rules about several keys: those are checks.h.
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

// A member that is one of several choices.
struct Choice {
  void* member = nullptr;
  int (*get)(const void* member) = nullptr;
  void (*set)(void* member, int number) = nullptr;
};

// Where the value of a key lives in a Config, and by that its type.
using Slot =
    std::variant<bool*, std::int64_t*, std::uint64_t*, double*, std::string*, Choice, std::vector<std::string>*,
                 std::vector<std::int64_t>*, std::vector<double>*, std::array<double, 2>*>;

// What somebody wrote, whatever the syntax: one item, or a list of them.
using Item = std::variant<bool, std::int64_t, double, std::string>;
struct Value {
  bool is_list = false;
  std::vector<Item> items;  // exactly one unless is_list
};

struct KeyRules {
  double lowest = 0, highest = 0;  // numbers, and each number of a list; both are allowed themselves
  const char* choices = "";        // of a choice, in the order of its numbers: "fp32|float32 bf16|bfloat16"
  const char* known_as = "";       // by other programs, for suggestions: "learning_rate base_lr"
  bool fixed = false;              // may not change when a run is resumed
};

struct Key {
  const char* name;         // "train.lr"
  const char* description;  // for docs/recipes.md
  Slot (*slot)(Config&);
  KeyRules rules = {};

  // "whole number", "text", "list of numbers", "fp32, bf16 or fp16": for the reference and for messages.
  std::string TypeToString() const;
  // "0 … 1"; empty where there is no range.
  std::string RangeToString() const;

  // Puts the value into the config; nothing is changed when it is refused. The problem has no name in front: "must be
  // a whole number, not the text \"ten\"".
  std::optional<std::string> Set(Config& config, const Value& value) const;
  // The value as the resolved file has it: 0.0001, "text", [1, 2, 3].
  std::string Get(const Config& config) const;
};

// In the order of config.h.
const std::vector<Key>& Keys();
// nullptr: there is none.
const Key* FindKey(std::string_view name);
// A beginning of keys, such as "data" or "data.synthetic".
bool IsTable(std::string_view name);
// The key that was probably meant: a slip of the finger, a key of another table, or another program's name for it.
std::optional<std::string> NearestKey(std::string_view name);

// "\"text\"" with everything escaped that could break a line.
std::string Quoted(std::string_view text);

// Texts and lists of a config are no larger.
inline constexpr std::size_t kMaxStringBytes = 4096;
inline constexpr std::size_t kMaxStrings = 4096;
inline constexpr std::size_t kMaxNumbers = 64;

}  // namespace fulldeck::config
