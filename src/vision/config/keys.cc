#include "config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/text.h"

namespace fulldeck::config {
namespace {

// "a|b c" yields {a, b}, {c}.
std::vector<std::vector<std::string>> SpellingsByChoice(const Key& key) {
  std::vector<std::vector<std::string>> choices;
  for (const std::string_view choice : base::Split(key.rules.choices, ' ')) {
    std::vector<std::string> spellings;
    for (const std::string_view spelling : base::Split(choice, '|')) spellings.emplace_back(spelling);
    choices.push_back(std::move(spellings));
  }
  return choices;
}

std::string Listed(const std::vector<std::string>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

std::vector<std::string> FirstSpellings(const Key& key) {
  std::vector<std::string> first;
  for (const auto& spellings : SpellingsByChoice(key)) first.push_back(spellings.front());
  return first;
}

std::string NumberText(double number) {
  return fmt::format("{}", number);
}

std::string ToString(const Item& item) {
  struct Visitor {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return NumberText(value); }
    std::string operator()(const std::string& value) const {
      return "the text " + Quoted(base::Printable(value.substr(0, 60)));
    }
  };
  return std::visit(Visitor{}, item);
}

std::string ToString(const Value& value) {
  return value.is_list ? fmt::format("a list of {}", value.items.size()) : ToString(value.items.front());
}

// One item as the type of the slot; nullopt if its type does not match.
template <typename T>
std::optional<T> As(const Item& item) {
  if (const T* same = std::get_if<T>(&item)) return *same;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* whole = std::get_if<std::int64_t>(&item)) return static_cast<double>(*whole);
  }
  return std::nullopt;
}

class Setter {
 public:
  Setter(const Key& key, const Value& value) : key_(key), value_(value) {}

  std::optional<std::string> operator()(bool* slot) const { return One(slot); }
  std::optional<std::string> operator()(std::int64_t* slot) const { return One(slot); }
  std::optional<std::string> operator()(double* slot) const { return One(slot); }
  std::optional<std::string> operator()(std::string* slot) const { return One(slot); }

  std::optional<std::string> operator()(std::uint64_t* slot) const {
    std::int64_t number = 0;
    if (auto problem = One(&number)) return problem;
    *slot = static_cast<std::uint64_t>(number);
    return std::nullopt;
  }

  std::optional<std::string> operator()(const Choice& choice) const {
    std::string word;
    if (value_.is_list || !As<std::string>(value_.items.front())) return WrongType();
    word = *As<std::string>(value_.items.front());
    std::vector<std::string> all;
    int number = 0;
    for (const auto& spellings : SpellingsByChoice(key_)) {
      if (std::find(spellings.begin(), spellings.end(), word) != spellings.end()) {
        choice.set(choice.member, number);
        return std::nullopt;
      }
      all.insert(all.end(), spellings.begin(), spellings.end());
      ++number;
    }
    const auto near = base::ClosestMatch(word, all);
    return fmt::format("must be {}, not {}{}", key_.TypeToString(), Quoted(base::Printable(word.substr(0, 60))),
                       near ? fmt::format("; did you mean {}?", Quoted(*near)) : "");
  }

  std::optional<std::string> operator()(std::vector<std::string>* slot) const { return Many(slot, kMaxStrings); }
  std::optional<std::string> operator()(std::vector<std::int64_t>* slot) const { return Many(slot, kMaxNumbers); }
  std::optional<std::string> operator()(std::vector<double>* slot) const { return Many(slot, kMaxNumbers); }

  std::optional<std::string> operator()(std::array<double, 2>* slot) const {
    std::vector<double> both;
    if (!value_.is_list || value_.items.size() != 2) return WrongType();
    if (auto problem = Many(&both, 2)) return problem;
    *slot = {both[0], both[1]};
    return std::nullopt;
  }

 private:
  std::string WrongType() const {
    return fmt::format("must be {}{}, not {}", Article(), key_.TypeToString(), ToString(value_));
  }
  std::string Article() const {
    return key_.TypeToString().starts_with("true") || key_.rules.choices[0] != '\0' ? "" : "a ";
  }

  std::optional<std::string> CheckValue(double number) const {
    if (std::isfinite(number) && number >= key_.rules.lowest && number <= key_.rules.highest) return std::nullopt;
    return fmt::format("must be within {}, not {}", key_.RangeToString(), NumberText(number));
  }
  std::optional<std::string> CheckValue(std::int64_t number) const {
    if (static_cast<double>(number) >= key_.rules.lowest && static_cast<double>(number) <= key_.rules.highest)
      return std::nullopt;
    return fmt::format("must be within {}, not {}", key_.RangeToString(), number);
  }
  static std::optional<std::string> CheckValue(bool) { return std::nullopt; }
  static std::optional<std::string> CheckValue(const std::string& text) {
    if (text.size() > kMaxStringBytes) return fmt::format("is longer than {} bytes", kMaxStringBytes);
    const bool control = std::any_of(text.begin(), text.end(), [](char letter) {
      return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
    });
    if (control) return "must not hold a control character, such as the end of a line";
    return std::nullopt;
  }

  template <typename T>
  std::optional<std::string> One(T* slot) const {
    if (value_.is_list) return WrongType();
    const auto item = As<T>(value_.items.front());
    if (!item) return WrongType();
    if (auto problem = CheckValue(*item)) return problem;
    *slot = *item;
    return std::nullopt;
  }

  template <typename T>
  std::optional<std::string> Many(std::vector<T>* slot, std::size_t most) const {
    if (!value_.is_list) return WrongType();
    if (value_.items.size() > most)
      return fmt::format("has {} items, and at most {} are taken", value_.items.size(), most);
    std::vector<T> items;
    for (const Item& given : value_.items) {
      const auto item = As<T>(given);
      if (!item) return fmt::format("must be a {}, and holds {}", key_.TypeToString(), ToString(given));
      if (auto problem = CheckValue(*item)) return "holds a value that " + *problem;
      items.push_back(*item);
    }
    *slot = std::move(items);
    return std::nullopt;
  }

  const Key& key_;
  const Value& value_;
};

class Getter {
 public:
  explicit Getter(const Key& key) : key_(key) {}
  std::string operator()(const bool* slot) const { return *slot ? "true" : "false"; }
  std::string operator()(const std::int64_t* slot) const { return std::to_string(*slot); }
  std::string operator()(const std::uint64_t* slot) const { return std::to_string(*slot); }
  std::string operator()(const double* slot) const { return NumberText(*slot); }
  std::string operator()(const std::string* slot) const { return Quoted(*slot); }
  std::string operator()(const Choice& choice) const {
    return Quoted(FirstSpellings(key_).at(static_cast<std::size_t>(choice.get(choice.member))));
  }
  template <typename Items>
  std::string operator()(const Items* items) const {
    std::string text = "[";
    for (const auto& item : *items) {
      if (text.size() > 1) text += ", ";
      text += (*this)(&item);
    }
    return text + "]";
  }

 private:
  const Key& key_;
};

struct TypeName {
  const Key& key;
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::int64_t*) const { return "whole number"; }
  std::string operator()(const std::uint64_t*) const { return "whole number"; }
  std::string operator()(const double*) const { return "number"; }
  std::string operator()(const std::string*) const { return "text"; }
  std::string operator()(const Choice&) const {
    std::vector<std::string> choices;
    for (const std::string& word : FirstSpellings(key)) choices.push_back(Quoted(word));
    return Listed(choices);
  }
  std::string operator()(const std::vector<std::string>*) const { return "list of texts"; }
  std::string operator()(const std::vector<std::int64_t>*) const { return "list of whole numbers"; }
  std::string operator()(const std::vector<double>*) const { return "list of numbers"; }
  std::string operator()(const std::array<double, 2>*) const { return "list of two numbers"; }
};

Slot DummySlot(const Key& key) {
  static Config dummy;
  return key.slot(dummy);
}

}  // namespace

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(letter));
    } else {
      quoted += letter;
    }
  }
  return quoted + "\"";
}

std::string Key::TypeToString() const {
  return std::visit(TypeName{*this}, DummySlot(*this));
}

std::string Key::RangeToString() const {
  if (rules.lowest == 0 && rules.highest == 0) return "";
  return fmt::format("{} … {}", NumberText(rules.lowest), NumberText(rules.highest));
}

std::optional<std::string> Key::Set(Config& config, const Value& value) const {
  return std::visit(Setter(*this, value), slot(config));
}

std::string Key::Get(const Config& config) const {
  // The slot is only read through.
  return std::visit(Getter(*this), slot(const_cast<Config&>(config)));
}

const Key* FindKey(std::string_view name) {
  for (const Key& key : Keys()) {
    if (name == key.name) return &key;
  }
  return nullptr;
}

bool IsTable(std::string_view name) {
  return std::any_of(Keys().begin(), Keys().end(), [&](const Key& key) {
    const std::string_view whole = key.name;
    return whole.size() > name.size() && whole.starts_with(name) && whole[name.size()] == '.';
  });
}

std::optional<std::string> NearestKey(std::string_view name) {
  const auto last_part = [](std::string_view whole) { return whole.substr(whole.rfind('.') + 1); };
  const std::string_view last = last_part(name);
  std::vector<std::string> all, beside, of_others;
  std::vector<std::string> of_others_meant;
  for (const Key& key : Keys()) {
    if (last_part(key.name) == last) return key.name;
    for (const std::string_view other : base::Split(key.rules.known_as, ' ')) {
      if (!other.empty() && other == last) return key.name;
    }
    all.emplace_back(key.name);
  }
  if (auto near = base::ClosestMatch(name, all)) {
    // A long table name makes different keys look alike, so the last component must match by itself.
    if (base::ClosestMatch(last, {std::string(last_part(*near))})) return near;
  }
  for (const Key& key : Keys()) {
    if (base::ClosestMatch(last, {std::string(last_part(key.name))}) && last.size() > 3) return key.name;
  }
  return std::nullopt;
}

}  // namespace fulldeck::config
