#include "texts/table.h"

#include <toml++/toml.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fulldeck::texts {
namespace {

using Kind = Node::Kind;

std::string NameOf(Kind kind) {
  switch (kind) {
    case Kind::kText:
      return "text";
    case Kind::kFlag:
      return "true or false";
    case Kind::kList:
      return "a list";
    case Kind::kTable:
      return "a table";
  }
  return "";
}

[[noreturn]] void RefuseFile(const std::string& problem, const std::string& path, int line) {
  base::CheckFailed(problem.c_str(), path.c_str(), line);
}

Node NodeOf(const toml::node& value, const std::string& key, const std::string& path) {
  Node node;
  node.key = key;
  node.line = static_cast<int>(value.source().begin.line);
  if (const auto* text = value.as_string()) {
    node.kind = Kind::kText;
    node.text = text->get();
  } else if (const auto* flag = value.as_boolean()) {
    node.kind = Kind::kFlag;
    node.flag = flag->get();
  } else if (const auto* list = value.as_array()) {
    node.kind = Kind::kList;
    for (const toml::node& child : *list) node.children.push_back(NodeOf(child, "", path));
  } else if (const auto* table = value.as_table()) {
    for (const auto& [name, child] : *table) node.children.push_back(NodeOf(child, std::string(name.str()), path));
  } else {
    RefuseFile(key + " is no text, list, table, true or false", path, node.line);
  }
  return node;
}

Node Parse(const EmbeddedFile& file) {
  const std::string path(file.path);
  const toml::parse_result parsed = toml::parse(file.text, path);
  if (!parsed) {
    RefuseFile("TOML: " + std::string(parsed.error().description()), path,
               static_cast<int>(parsed.error().source().begin.line));
  }
  return NodeOf(parsed.table(), "", path);
}

}  // namespace

Table::Table(const EmbeddedFile& file) : Table(std::string(file.path), Parse(file)) {}

Table::Table(std::string path, Node node) : path_(std::move(path)), node_(std::move(node)) {}

void Table::Refuse(const std::string& problem) const {
  Refuse(problem, node_.line);
}

void Table::Refuse(const std::string& problem, int line) const {
  RefuseFile(problem, path_, line);
}

std::optional<Node> Table::Take(Node& table, std::string_view key, Kind kind) const {
  const auto found =
      std::find_if(table.children.begin(), table.children.end(), [&](const Node& child) { return child.key == key; });
  if (found == table.children.end()) return std::nullopt;
  Node taken = std::move(*found);
  table.children.erase(found);
  if (taken.kind != kind) Refuse(taken.key + " must be " + NameOf(kind), taken.line);
  return taken;
}

Node Table::TakeRequired(Node& table, std::string_view key, Kind kind) const {
  std::optional<Node> taken = Take(table, key, kind);
  if (!taken) {
    const std::string of_table = table.key.empty() ? "" : " in " + table.key;
    Refuse("the key " + std::string(key) + " is missing" + of_table, table.line);
  }
  return std::move(*taken);
}

std::string Table::TextOf(const Node& node) const {
  if (node.kind != Kind::kText || node.text.empty()) Refuse("an empty text, or something else than a text", node.line);
  return node.text;
}

std::string Table::TakeText(std::string_view key) {
  return TextOf(TakeRequired(node_, key, Kind::kText));
}

base::BilingualText Table::TakeBilingualText(std::string_view key) {
  const auto in = [&](std::string_view language) {
    const auto table = std::find_if(node_.children.begin(), node_.children.end(),
                                    [&](const Node& child) { return child.key == language; });
    if (table == node_.children.end() || table->kind != Kind::kTable)
      Refuse("the table " + std::string(language) + " is missing");
    return TextOf(TakeRequired(*table, key, Kind::kText));
  };
  return {in("en"), in("zh")};
}

std::vector<std::string> Table::TakeTexts(std::string_view key) {
  std::vector<std::string> texts;
  if (const auto list = Take(node_, key, Kind::kList)) {
    for (const Node& item : list->children) texts.push_back(TextOf(item));
  }
  return texts;
}

std::vector<std::vector<std::string>> Table::TakeTextLists(std::string_view key) {
  std::vector<std::vector<std::string>> lists;
  if (const auto list = Take(node_, key, Kind::kList)) {
    for (const Node& item : list->children) {
      if (item.kind != Kind::kList || item.children.empty())
        Refuse("an empty list, or something else than a list", item.line);
      std::vector<std::string>& texts = lists.emplace_back();
      for (const Node& text : item.children) texts.push_back(TextOf(text));
    }
  }
  return lists;
}

bool Table::TakeFlag(std::string_view key) {
  const auto taken = Take(node_, key, Kind::kFlag);
  return taken && taken->flag;
}

Table Table::TakeTable(std::string_view key) {
  return {path_, TakeRequired(node_, key, Kind::kTable)};
}

std::vector<Table> Table::TakeTables(std::string_view key) {
  std::vector<Table> tables;
  Node list = TakeRequired(node_, key, Kind::kList);
  for (Node& item : list.children) {
    if (item.kind != Kind::kTable) Refuse(std::string(key) + " must be tables", item.line);
    tables.push_back(Table(path_, std::move(item)));
  }
  return tables;
}

void Table::Done() {
  for (const Node& child : node_.children) {
    const bool is_language = child.kind == Kind::kTable && (child.key == "en" || child.key == "zh");
    if (!is_language) Refuse("there is no key " + child.key, child.line);
    if (!child.children.empty())
      Refuse("there is no key " + child.children.front().key + " in " + child.key, child.children.front().line);
  }
}

}  // namespace fulldeck::texts
