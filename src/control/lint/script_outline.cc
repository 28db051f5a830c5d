#include "lint/script_outline.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace fulldeck::lint {
namespace {

constexpr std::array<std::string_view, 12> kHeaderWords = {"if",  "elif",    "else", "for",  "while", "try",
                                                           "def", "finally", "with", "case", "class", "except"};
// Words after which a bracket is not a call.
constexpr std::array<std::string_view, 24> kNoCallees = {
    "if",  "elif", "while", "in",   "and",  "or",     "not", "return", "yield", "await", "lambda", "assert",
    "del", "else", "is",    "from", "with", "except", "for", "raise",  "case",  "match", "import", "async"};

// Per block before a statement: only the nearest ones, to bound the time for files that consist only of exits.
constexpr std::ptrdiff_t kMaxExits = 64;

template <typename List>
bool Contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool IsOpening(const Token& token) {
  return token.kind == TokenKind::kOperator && (token.text == "(" || token.text == "[" || token.text == "{");
}
bool IsClosing(const Token& token) {
  return token.kind == TokenKind::kOperator && (token.text == ")" || token.text == "]" || token.text == "}");
}

std::string Small(std::string_view text) {
  std::string small(text);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

bool IsIdentifier(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

Script::Script(std::string source) : source_(std::move(source)), tokens_(Tokenize(source_)) {
  lines_ = base::Split(source_, '\n');
  match_.assign(tokens_.size(), tokens_.size());
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (IsOpening(tokens_[i])) open.push_back(i);
    if (IsClosing(tokens_[i]) && !open.empty()) {
      match_[open.back()] = i;
      open.pop_back();
    }
  }
  statement_of_.assign(tokens_.size(), -1);
  ReadStatements();
  ReadImports();
  ReadAssignments();
  ReadCalls();
}

std::string_view Script::Line(int number) const {
  if (number < 1 || static_cast<std::size_t>(number) > lines_.size()) return "";
  return base::Trim(lines_[static_cast<std::size_t>(number) - 1]);
}

// ---- statements ----

void Script::ReadStatements() {
  children_.resize(1);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].kind != TokenKind::kNewline) continue;
    if (i > begin) ReadLogicalLine({begin, i});
    begin = i + 1;
  }
  exits_.resize(children_.size());
  for (std::size_t i = 0; i < statements_.size(); ++i) {
    const Statement& statement = statements_[i];
    const bool returns = statement.word == "if" && statement.is_header && LeavesItsBlock(static_cast<int>(i));
    if (returns || statement.word == "assert") {
      exits_[static_cast<std::size_t>(statement.parent) + 1].push_back(static_cast<int>(i));
    }
  }
}

// For a header: the colon that precedes its block; the end of the line if there is none.
std::size_t Script::ColonOf(Range line) const {
  int lambdas = 0;
  for (std::size_t i = line.begin; i < line.end; ++i) {
    if (IsOpening(tokens_[i])) {
      i = match_[i];
      continue;
    }
    if (tokens_[i].Is("lambda")) ++lambdas;
    if (tokens_[i].Is(":") && lambdas-- == 0) return i;
    if (lambdas < 0) lambdas = 0;
  }
  return line.end;
}

void Script::ReadLogicalLine(Range line) {
  const int column = tokens_[line.begin].column;
  while (!open_.empty() && column <= open_.back().column) open_.pop_back();
  int parent = open_.empty() ? -1 : open_.back().header;

  std::size_t first = line.begin;
  if (tokens_[first].Is("async") && first + 1 < line.end) ++first;
  const bool plain_match = tokens_[first].Is("match") && tokens_[line.end - 1].Is(":");
  if (tokens_[first].IsName() && (Contains(kHeaderWords, tokens_[first].text) || plain_match)) {
    const std::size_t colon = ColonOf(line);
    if (colon < line.end) {
      const int header = Add({first, colon}, true, parent);
      line.begin = colon + 1;
      if (line.begin >= line.end) {
        open_.push_back({header, column});
        return;
      }
      parent = header;
    }
  }
  std::size_t begin = line.begin;
  for (std::size_t i = line.begin; i < line.end; ++i) {
    if (IsOpening(tokens_[i])) i = std::min(match_[i], line.end - 1);
    if (!tokens_[i].Is(";")) continue;
    if (i > begin) Add({begin, i}, false, parent);
    begin = i + 1;
  }
  if (begin < line.end) Add({begin, line.end}, false, parent);
}

int Script::Add(Range tokens, bool is_header, int parent) {
  Statement statement;
  statement.tokens = tokens;
  statement.line = tokens_[tokens.begin].line;
  statement.parent = parent;
  statement.is_header = is_header;
  if (tokens_[tokens.begin].IsName()) statement.word = tokens_[tokens.begin].text;
  std::vector<int>& siblings = children_[static_cast<std::size_t>(parent) + 1];
  const bool follows = is_header && (statement.word == "else" || statement.word == "elif" ||
                                     statement.word == "except" || statement.word == "finally");
  if (follows && !siblings.empty() && statements_[static_cast<std::size_t>(siblings.back())].is_header) {
    statement.partner = siblings.back();
  }
  const int index = static_cast<int>(statements_.size());
  siblings.push_back(index);
  for (std::size_t i = tokens.begin; i < tokens.end; ++i) statement_of_[i] = index;
  statements_.push_back(statement);
  children_.emplace_back();
  return index;
}

// ---- names ----

void Script::ReadImports() {
  const auto dotted = [&](std::size_t& at, std::size_t end) {
    std::string name;
    while (at < end && (tokens_[at].IsName() || tokens_[at].Is(".") || tokens_[at].Is("...")) &&
           !tokens_[at].Is("as") && !tokens_[at].Is("import")) {
      name += tokens_[at++].text;
    }
    return name;
  };
  for (const Statement& statement : statements_) {
    std::size_t at = statement.tokens.begin + 1;
    const std::size_t end = statement.tokens.end;
    std::string from;
    if (statement.word == "from") {
      from = dotted(at, end);
      modules_.push_back(from);
      if (at >= end || !tokens_[at].Is("import")) continue;
      ++at;
    } else if (statement.word != "import") {
      continue;
    }
    for (; at < end; ++at) {
      if (!tokens_[at].IsName()) continue;
      std::string name = dotted(at, end);
      if (!from.empty()) name = from + "." + name;
      modules_.push_back(name);
      if (at + 1 < end && tokens_[at].Is("as")) {
        imported_[std::string(tokens_[at + 1].text)] = name;
        ++at;
      } else if (!from.empty()) {
        imported_[name.substr(name.rfind('.') + 1)] = name;
      }
    }
  }
}

bool Script::Imports(std::string_view module) const {
  return std::any_of(modules_.begin(), modules_.end(), [&](const std::string& name) {
    return name == module || (name.starts_with(module) && name[module.size()] == '.');
  });
}

std::string Script::FullName(Range range) const {
  if (range.empty()) return "";
  std::string name;
  const auto found = imported_.find(tokens_[range.begin].text);
  name = found != imported_.end() ? found->second : std::string(tokens_[range.begin].text);
  for (std::size_t i = range.begin + 1; i < range.end; ++i) name += tokens_[i].text;
  return name;
}

// ---- assignments ----

void Script::ReadAssignments() {
  for (std::size_t index = 0; index < statements_.size(); ++index) {
    const Statement& statement = statements_[index];
    if (statement.is_header) continue;
    std::vector<Range> parts;
    std::size_t begin = statement.tokens.begin;
    std::size_t target_end = 0;  // of an annotated one
    for (std::size_t i = statement.tokens.begin; i < statement.tokens.end; ++i) {
      if (IsOpening(tokens_[i])) {
        i = std::min(match_[i], statement.tokens.end - 1);
      } else if (tokens_[i].Is("lambda")) {
        break;
      } else if (tokens_[i].Is(":") && parts.empty() && target_end == 0) {
        target_end = i;
      } else if (tokens_[i].Is("=")) {
        parts.push_back({begin, parts.empty() && target_end != 0 ? target_end : i});
        begin = i + 1;
      }
    }
    if (parts.empty()) continue;
    const Range value{begin, statement.tokens.end};
    for (const Range& part : parts) {
      for (const Argument& target : ArgumentsIn(part)) {
        if (target.value.empty()) continue;
        const Token& last = tokens_[target.value.end - 1];
        assignments_.push_back(
            {last.IsName() ? last.text : std::string_view(), target.value, value, static_cast<int>(index)});
      }
    }
    // dist = torch.distributed
    const bool plain = std::all_of(tokens_.begin() + static_cast<std::ptrdiff_t>(value.begin),
                                   tokens_.begin() + static_cast<std::ptrdiff_t>(value.end),
                                   [](const Token& token) { return token.IsName() || token.Is("."); });
    const Range target = parts.front();
    if (parts.size() == 1 && target.end == target.begin + 1 && plain && !value.empty()) {
      const std::string name = FullName(value);
      if (name.starts_with("torch.")) imported_.emplace(tokens_[target.begin].text, name);
    }
  }
}

// ---- calls ----

std::vector<Argument> Script::ArgumentsIn(Range range) const {
  std::vector<Argument> arguments;
  std::size_t begin = range.begin;
  const auto add = [&](std::size_t end) {
    Argument argument;
    argument.value = {begin, end};
    if (begin < end && (tokens_[begin].Is("*") || tokens_[begin].Is("**"))) {
      argument.stars = static_cast<int>(tokens_[begin].text.size());
      ++argument.value.begin;
    } else if (begin + 1 < end && tokens_[begin].IsName() && tokens_[begin + 1].Is("=")) {
      argument.keyword = tokens_[begin].text;
      argument.value.begin += 2;
    }
    if (begin < end) arguments.push_back(argument);
    begin = end + 1;
  };
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (IsOpening(tokens_[i])) {
      i = std::min(match_[i], range.end - 1);
    } else if (tokens_[i].Is(",")) {
      add(i);
    }
  }
  add(range.end);
  return arguments;
}

void Script::ReadCalls() {
  for (std::size_t i = 1; i < tokens_.size(); ++i) {
    if (!tokens_[i].Is("(")) continue;
    const Token& before = tokens_[i - 1];
    const bool name = before.IsName() && !Contains(kNoCallees, before.text);
    if (!name && !before.Is(")") && !before.Is("]")) continue;
    if (i >= 2 && (tokens_[i - 2].Is("def") || tokens_[i - 2].Is("class"))) continue;
    Call call;
    call.line = before.line;
    call.statement = statement_of_[i];
    call.arguments_range = {i + 1, std::min(match_[i], tokens_.size())};
    call.arguments = ArgumentsIn(call.arguments_range);
    if (name) {
      std::size_t begin = i - 1;
      while (begin >= 2 && tokens_[begin - 1].Is(".") && tokens_[begin - 2].IsName()) begin -= 2;
      call.method = before.text;
      if (begin >= 1 && tokens_[begin - 1].Is(".")) {
        for (std::size_t k = begin - 1; k < i; ++k) call.callee += tokens_[k].text;
      } else {
        call.callee_tokens = {begin, i};
        call.callee = FullName(call.callee_tokens);
        call.method = call.callee.substr(call.callee.rfind('.') + 1);
        call.line = tokens_[begin].line;
      }
    }
    calls_.push_back(std::move(call));
  }
}

const Argument* Script::Find(const Call& call, std::string_view keyword, std::optional<std::size_t> position) {
  for (const Argument& argument : call.arguments) {
    if (argument.stars == 0 && argument.keyword == keyword && !keyword.empty()) return &argument;
  }
  if (!position || *position >= call.arguments.size()) return nullptr;
  for (std::size_t i = 0; i <= *position; ++i) {
    if (call.arguments[i].stars != 0 || !call.arguments[i].keyword.empty()) return nullptr;
  }
  return &call.arguments[*position];
}

bool Script::HasStars(const Call& call) {
  return std::any_of(call.arguments.begin(), call.arguments.end(), [](const Argument& one) { return one.stars != 0; });
}

// ---- contents of a range ----

std::optional<std::string> Script::Text(Range range) const {
  while (range.end > range.begin + 1 && tokens_[range.begin].Is("(") && match_[range.begin] == range.end - 1) {
    ++range.begin;
    --range.end;
  }
  if (range.empty()) return std::nullopt;
  std::string text;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (tokens_[i].kind != TokenKind::kString || tokens_[i].formatted) return std::nullopt;
    text += tokens_[i].content;
  }
  return text;
}

std::optional<long> Script::Number(Range range) const {
  if (range.end != range.begin + 1 || tokens_[range.begin].kind != TokenKind::kNumber) return std::nullopt;
  return base::ParseInteger<long>(tokens_[range.begin].text);
}

bool Script::Mentions(Range range, const std::function<bool(std::string_view)>& fits) const {
  for (std::size_t i = range.begin; i < range.end && i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    if (token.IsName() && fits(Small(token.text))) return true;
    if (token.kind != TokenKind::kString) continue;
    if (!token.formatted && IsIdentifier(token.content) && fits(Small(token.content))) return true;
    for (const std::string_view name : NamesInside(token)) {
      if (fits(Small(name))) return true;
    }
  }
  return false;
}

bool Script::MentionsSubstring(Range range, std::string_view part) const {
  return Mentions(range, [&](std::string_view name) { return name.find(part) != std::string_view::npos; });
}

bool Script::MentionsText(Range range, std::string_view text) const {
  for (std::size_t i = range.begin; i < range.end && i < tokens_.size(); ++i) {
    if (tokens_[i].kind == TokenKind::kString && tokens_[i].content == text) return true;
  }
  return false;
}

bool Script::Has(Range range, std::string_view word) const {
  for (std::size_t i = range.begin; i < range.end && i < tokens_.size(); ++i) {
    if (tokens_[i].Is(word)) return true;
  }
  return false;
}

// ---- blocks ----

bool Script::LeavesItsBlock(int header) const {
  const auto& body = children_[static_cast<std::size_t>(header) + 1];
  return std::any_of(body.begin(), body.end(), [&](int child) {
    const Statement& statement = statements_[static_cast<std::size_t>(child)];
    const std::string_view word = statement.word;
    if (word == "return" || word == "continue" || word == "break" || word == "raise") return true;
    return Has(statement.tokens, "exit") || Has(statement.tokens, "_exit");
  });
}

std::vector<Range> Script::ConditionsOf(int statement) const {
  std::vector<Range> conditions;
  if (statement < 0) return conditions;
  for (int at = statement; at >= 0; at = statements_[static_cast<std::size_t>(at)].parent) {
    const int parent = statements_[static_cast<std::size_t>(at)].parent;
    const std::vector<int>& exits = exits_[static_cast<std::size_t>(parent) + 1];
    const auto after = std::lower_bound(exits.begin(), exits.end(), at);
    for (auto before = after - std::min<std::ptrdiff_t>(kMaxExits, after - exits.begin()); before != after; ++before) {
      conditions.push_back(statements_[static_cast<std::size_t>(*before)].tokens);
    }
    for (int header = parent; header >= 0; header = statements_[static_cast<std::size_t>(header)].partner) {
      const std::string_view word = statements_[static_cast<std::size_t>(header)].word;
      if (word == "def" || word == "class" || word == "try") break;
      conditions.push_back(statements_[static_cast<std::size_t>(header)].tokens);
    }
  }
  return conditions;
}

int Script::FunctionOf(int statement) const {
  if (statement < 0) return -1;
  for (int at = statements_[static_cast<std::size_t>(statement)].parent; at >= 0;
       at = statements_[static_cast<std::size_t>(at)].parent) {
    if (statements_[static_cast<std::size_t>(at)].word == "def") return at;
  }
  return -1;
}

std::string_view Script::NameOfFunction(int def) const {
  if (def < 0) return "";
  const Range tokens = statements_[static_cast<std::size_t>(def)].tokens;
  return tokens.end > tokens.begin + 1 ? tokens_[tokens.begin + 1].text : std::string_view();
}

bool Script::IsInside(int statement, int header) const {
  while (statement >= 0) {
    statement = statements_[static_cast<std::size_t>(statement)].parent;
    if (statement == header) return header >= 0;
  }
  return false;
}

std::vector<Range> Script::DecoratorsOf(int def) const {
  std::vector<Range> decorators;
  if (def < 0) return decorators;
  const auto& siblings = children_[static_cast<std::size_t>(statements_[static_cast<std::size_t>(def)].parent) + 1];
  auto at = std::find(siblings.begin(), siblings.end(), def);
  while (at != siblings.begin()) {
    const Statement& before = statements_[static_cast<std::size_t>(*--at)];
    if (!tokens_[before.tokens.begin].Is("@")) break;
    decorators.push_back(before.tokens);
  }
  return decorators;
}

}  // namespace fulldeck::lint
