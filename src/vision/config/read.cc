#include "config/read.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/text.h"
#include "config/checks.h"
#include "config/keys.h"

namespace fulldeck::config {
namespace {

constexpr std::size_t kMaxErrors = 30;

std::optional<Item> ItemOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* boolean = node.as_boolean()) return boolean->get();
  return std::nullopt;
}

// data, data.synthetic, model …
std::vector<std::string> Tables() {
  std::vector<std::string> tables;
  for (const Key& key : Keys()) {
    const std::string_view name = key.name;
    if (name.find('.') == std::string_view::npos) continue;
    const std::string table(name.substr(0, name.rfind('.')));
    if (tables.empty() || tables.back() != table) tables.push_back(table);
  }
  return tables;
}

std::string TypeOf(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  return "a date or time";
}

constexpr int kMaxDepth = 32;

// Whether brackets, braces or the components of a dotted key nest deeper than kMaxDepth. Strings and comments do not
// count. For invalid TOML, either result is possible.
bool IsNestedTooDeep(std::string_view text) {
  int brackets = 0;
  int dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (letter == '"' || letter == '\'') {
      const std::string long_quote(3, letter);
      const bool is_long = text.substr(at).starts_with(long_quote);
      at += is_long ? 3 : 1;
      while (at < text.size() && (is_long ? !text.substr(at).starts_with(long_quote) : text[at] != letter)) {
        // A single-line string ends with its line, closed or not.
        if (!is_long && text[at] == '\n') break;
        at += letter == '"' && text[at] == '\\' ? 2 : 1;
      }
      at += is_long ? 2 : 0;
    } else if (letter == '#') {
      at = std::min(text.find('\n', at), text.size());
      dots = 0;
    } else if (letter == '[' || letter == '{') {
      ++brackets;
      dots = 0;
    } else if (letter == ']' || letter == '}') {
      brackets = std::max(brackets - 1, 0);
    } else if (letter == '.') {
      ++dots;
    } else if (letter == '=' || letter == ',' || letter == '\n') {
      dots = 0;
    }
    if (brackets + dots > kMaxDepth) return true;
  }
  return false;
}

class Reader {
 public:
  Reader(const std::string& file_name, std::vector<std::string>* notes)
      : file_(base::Printable(file_name)), notes_(notes) {}

  void ReadFile(std::string_view text) {
    if (text.size() > kMaxConfigBytes) {
      return AddError(file_,
                      fmt::format("is larger than {}; this is no recipe", base::FormatByteSize(kMaxConfigBytes)));
    }
    // Must precede the parser: it recurses as deep as the text nests, and its stack is limited.
    if (IsNestedTooDeep(text))
      return AddError(file_, fmt::format("is nested deeper than {} levels; this is no recipe", kMaxDepth));
    const toml::parse_result parsed = toml::parse(text, std::string_view(file_));
    if (!parsed) {
      const toml::parse_error& error = parsed.error();
      return AddError(PlaceOf(error.source()), "this is no TOML: " + base::Printable(error.description()));
    }
    ReadTable(parsed.table(), "", std::nullopt);
  }

  void Assign(const std::string& assignment) {
    const std::string place = "--set " + base::Printable(assignment.substr(0, 200));
    const std::size_t equals = assignment.find('=');
    const std::string key(base::Trim(std::string_view(assignment).substr(0, equals)));
    if (equals == std::string::npos || key.empty()) {
      return AddError(place, "write it as KEY=VALUE, such as --set train.lr=1e-3");
    }
    const std::string written(base::Trim(std::string_view(assignment).substr(equals + 1)));
    if (written.size() > kMaxConfigBytes) return AddError(place, "the value is too long");
    if (IsNestedTooDeep(written)) return AddError(place, fmt::format("is nested deeper than {} levels", kMaxDepth));
    toml::table word;
    const bool single_line = written.find_first_of("\r\n") == std::string::npos;
    toml::parse_result parsed = toml::parse(single_line ? "value = " + written : std::string("?"));
    const bool is_value = parsed && parsed.table().size() == 1 && parsed.table().contains("value");
    if (!is_value) word.insert("value", written);
    const toml::node& node = *(is_value ? parsed.table() : word).get("value");
    ReplaceLength(key);
    ReadNode(node, key, place);
  }

  base::Result<Config> Finish() {
    // A config that was only partly understood would report misleading contradictions.
    if (errors_.empty()) {
      ApplyDefaults(config_, [this](std::string_view key) { return places_.find(key) != places_.end(); });
      for (const Contradiction& contradiction : Contradictions(config_)) {
        const auto place = places_.find(contradiction.key);
        AddError(place == places_.end() ? file_ : place->second, contradiction.message);
      }
    }
    if (errors_.empty()) return std::move(config_);
    // The parser sorts the keys of a table by name; sort errors by line for the reader.
    std::stable_sort(errors_.begin(), errors_.end(),
                     [](const ConfigError& a, const ConfigError& b) { return a.line < b.line; });
    std::vector<std::string> lines;
    for (const ConfigError& error : errors_) {
      if (lines.size() == kMaxErrors) {
        lines.push_back(fmt::format("{}: and {} more", file_, errors_.size() - kMaxErrors));
        break;
      }
      lines.push_back(error.text + Suggestion(error));
    }
    return base::Error{base::Join(lines, "\n")};
  }

 private:
  struct ConfigError {
    long long line;
    std::string text;
    // Suggestions for these are searched only when the error is shown, because that is slow.
    std::string unknown_key, unknown_table;
  };

  static std::string Suggestion(const ConfigError& error) {
    if (!error.unknown_table.empty()) {
      const auto near = base::ClosestMatch(error.unknown_table, Tables());
      return near ? fmt::format("; did you mean {}?", Quoted(*near)) : "; there are " + base::Join(Tables(), ", ");
    }
    if (error.unknown_key.empty()) return "";
    const auto near = NearestKey(error.unknown_key);
    return near ? fmt::format("; did you mean {}?", InTable(*near, error.unknown_key)) : "; see docs/recipes.md";
  }

  // Errors without a line sort last.
  void AddError(const std::string& place, const std::string& message, std::string unknown_key = "",
                std::string unknown_table = "") {
    long long line = std::numeric_limits<long long>::max();
    if (place.starts_with(file_ + ":")) {
      const std::string_view rest = std::string_view(place).substr(file_.size() + 1);
      line = base::ParseInteger<long long>(rest.substr(0, rest.find(':'))).value_or(line);
    }
    errors_.push_back({line, place + ": " + message, std::move(unknown_key), std::move(unknown_table)});
  }

  std::string PlaceOf(const toml::source_region& region) const {
    return fmt::format("{}:{}:{}", file_, region.begin.line, region.begin.column);
  }

  // Handles --set epochs=50 on a file that sets steps (and vice versa).
  void ReplaceLength(const std::string& key) {
    const bool epochs = key == "epochs";
    if (!epochs && key != "steps") return;
    const char* other = epochs ? "steps" : "epochs";
    std::int64_t& replaced = epochs ? config_.steps : config_.epochs;
    const auto place = places_.find(std::string_view(other));
    if (replaced == 0 || place == places_.end() || place->second.starts_with("--set")) return;
    if (notes_ != nullptr) {
      notes_->push_back(fmt::format("--set {} replaces {} = {} of {}", key, other, replaced, file_));
    }
    replaced = 0;
  }

  // `place`: overrides the location of everything below, for nodes that do not know theirs.
  void ReadTable(const toml::table& table, const std::string& prefix, const std::optional<std::string>& place) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      ReadNode(node, key, place ? *place : PlaceOf(name.source()));
    }
  }

  void ReadNode(const toml::node& node, const std::string& key, const std::string& place) {
    const bool from_command_line = place.starts_with("--set ");
    if (IsTable(key)) {
      if (const toml::table* table = node.as_table()) {
        return ReadTable(*table, key + ".", from_command_line ? std::optional(place) : std::nullopt);
      }
      return AddError(place, fmt::format("{0} is a table of keys: write {0}.KEY, or [{0}] above them", key));
    }
    const Key* known = FindKey(key);
    if (known == nullptr && node.is_table()) {
      // Reporting the keys of an unknown table as unknown too would be noise.
      return AddError(place, "there is no table " + Quoted(base::Printable(key.substr(0, 100))), "", key);
    }
    if (known == nullptr) {
      return AddError(place, "there is no key " + Quoted(base::Printable(key.substr(0, 100))), key);
    }
    Value value;
    if (const toml::array* list = node.as_array()) {
      value.is_list = true;
      for (const toml::node& item : *list) {
        auto converted = ItemOf(item);
        if (!converted)
          return AddError(place,
                          fmt::format("{} must be a {}, and holds {}", key, known->TypeToString(), TypeOf(item)));
        value.items.push_back(std::move(*converted));
      }
    } else if (auto item = ItemOf(node)) {
      value.items.push_back(std::move(*item));
    } else {
      return AddError(place, fmt::format("{} must be {}, not {}", key, known->TypeToString(), TypeOf(node)));
    }
    if (auto problem = known->Set(config_, value)) return AddError(place, key + " " + *problem);
    places_[key] = place;
  }

  // "lr" within the same table, "lr in [train]" from another one.
  static std::string InTable(const std::string& near, const std::string& requested) {
    const std::size_t dot = near.rfind('.');
    const std::string table = dot == std::string::npos ? "" : near.substr(0, dot);
    const std::size_t requested_dot = requested.rfind('.');
    const std::string requested_table = requested_dot == std::string::npos ? "" : requested.substr(0, requested_dot);
    if (table == requested_table) return Quoted(near);
    if (table.empty()) return fmt::format("{} (above all tables)", Quoted(near));
    return fmt::format("{} (key {} of [{}])", Quoted(near), near.substr(dot + 1), table);
  }

  const std::string file_;
  std::vector<std::string>* notes_;
  Config config_;
  std::map<std::string, std::string, std::less<>> places_;  // of the keys that were given
  std::vector<ConfigError> errors_;
};

}  // namespace

base::Result<Config> ReadToml(std::string_view text, const std::string& file_name,
                              const std::vector<std::string>& assignments, std::vector<std::string>* notes) {
  Reader reader(file_name, notes);
  reader.ReadFile(text);
  for (const std::string& assignment : assignments) reader.Assign(assignment);
  return reader.Finish();
}

}  // namespace fulldeck::config
