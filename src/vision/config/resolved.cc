// The resolved form of a config, driven by the same table of keys, without a TOML library.
#include <fmt/format.h>
#include <locale.h>

#include <cerrno>
#include <cstdlib>
#include <set>

#include "base/text.h"
#include "config/checks.h"
#include "config/keys.h"
#include "config/read.h"

namespace fulldeck::config {
namespace {

constexpr char kTitle[] = "# A recipe of fulldeck train with every key; written by fulldeck, read by its ranks.";

// Not std::from_chars, which some standard libraries lack for floating point; not strtod, which depends on the locale.
std::optional<double> ParseNumber(std::string_view text) {
  if (text.empty() || text.size() > 64 || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) {
    return std::nullopt;
  }
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string terminated(text);
  char* end = nullptr;
  const double number = strtod_l(terminated.c_str(), &end, plain);
  if (end != terminated.c_str() + terminated.size()) return std::nullopt;
  return number;
}

// Reads values from the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  std::optional<Value> Whole() {
    Value value;
    SkipSpace();
    if (Take('[')) {
      value.is_list = true;
      SkipSpace();
      while (!Take(']')) {
        if (!value.items.empty() && !Take(',')) return std::nullopt;
        SkipSpace();
        auto item = One();
        if (!item || value.items.size() >= kMaxStrings) return std::nullopt;
        value.items.push_back(std::move(*item));
        SkipSpace();
      }
    } else {
      auto item = One();
      if (!item) return std::nullopt;
      value.items.push_back(std::move(*item));
    }
    SkipSpace();
    if (!rest_.empty()) return std::nullopt;
    return value;
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool Take(char letter) {
    if (rest_.empty() || rest_.front() != letter) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<Item> One() {
    if (Take('"')) return Text();
    const std::string_view word = rest_.substr(0, rest_.find_first_of(",] "));
    rest_.remove_prefix(word.size());
    if (word == "true") return Item(true);
    if (word == "false") return Item(false);
    if (const auto whole = base::ParseInteger<std::int64_t>(word)) return Item(*whole);
    if (const auto number = ParseNumber(word)) return Item(*number);
    return std::nullopt;
  }

  std::optional<Item> Text() {
    std::string text;
    while (!rest_.empty()) {
      const char letter = rest_.front();
      rest_.remove_prefix(1);
      if (letter == '"') return Item(std::move(text));
      if (letter != '\\') {
        text += letter;
        continue;
      }
      // Values contain no control characters, so Quoted escapes only these two.
      if (rest_.empty() || (rest_.front() != '"' && rest_.front() != '\\')) return std::nullopt;
      text += rest_.front();
      rest_.remove_prefix(1);
    }
    return std::nullopt;
  }

  std::string_view rest_;
};

base::Result<Config> Read(std::string_view text, const std::string& file_name, bool of_this_version) {
  const std::string file = base::Printable(file_name);
  if (text.size() > kMaxConfigBytes) return base::Error{fmt::format("{}: is too large to be a recipe", file)};
  if (!text.ends_with('\n')) return base::Error{fmt::format("{}: the file was cut short", file)};
  Config config;
  std::set<std::string_view> seen;
  std::size_t number = 0;
  for (const std::string_view line : base::Split(text, '\n')) {
    ++number;
    const auto refuse = [&](const std::string& why) {
      return base::Error{fmt::format("{}:{}: {}", file, number, why)};
    };
    if (line.empty() || line.front() == '#') continue;
    const std::size_t equals = line.find(" = ");
    if (equals == std::string_view::npos) return refuse("this line has no ' = '");
    const std::string_view name = line.substr(0, equals);
    const Key* key = FindKey(name);
    if (key == nullptr && !of_this_version) continue;
    if (key == nullptr) {
      return refuse(fmt::format("there is no key {}: another version of fulldeck has written this",
                                Quoted(base::Printable(name.substr(0, 100)))));
    }
    if (!seen.insert(key->name).second) return refuse(fmt::format("{} stands here a second time", key->name));
    const auto value = Scanner(line.substr(equals + 3)).Whole();
    if (!value) return refuse(fmt::format("the value of {} cannot be read", key->name));
    if (const auto problem = key->Set(config, *value)) return refuse(fmt::format("{} {}", key->name, *problem));
  }
  if (!of_this_version) return config;
  for (const Key& key : Keys()) {
    if (seen.find(key.name) != seen.end()) continue;
    return base::Error{fmt::format(
        "{}: {} is missing: the file was cut short, or another version of fulldeck has written it", file, key.name)};
  }
  const auto contradictions = Contradictions(config);
  if (!contradictions.empty()) return base::Error{fmt::format("{}: {}", file, contradictions.front().message)};
  return config;
}

}  // namespace

std::string ToResolvedText(const Config& config) {
  std::string text = std::string(kTitle) + "\n";
  for (const Key& key : Keys()) text += fmt::format("{} = {}\n", key.name, key.Get(config));
  return text;
}

base::Result<Config> FromResolvedText(std::string_view text, const std::string& file_name) {
  return Read(text, file_name, true);
}

base::Result<Config> FromOlderResolvedText(std::string_view text, const std::string& file_name) {
  return Read(text, file_name, false);
}

}  // namespace fulldeck::config
