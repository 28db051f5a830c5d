// Reads the files of the folder data/ (data/README.md): what a user sees, in both languages, and what belongs to it.
// One format for all of them: a table has keys of its own, and its sentences in the tables [en] and [zh].
//
// Not for files of users. These are part of the program, so that a file which is no TOML, lacks a key, or has one that
// nobody reads is a broken invariant: the process ends with the file's name and the line.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bilingual_text.h"
#include "texts/embedded_file.h"

namespace fulldeck::texts {

// A part of a file, with the line it begins in.
struct Node {
  enum class Kind { kText, kFlag, kList, kTable };
  Kind kind = Kind::kTable;
  std::string key;             // in a table
  int line = 0;                // counted from 1
  std::string text;            // kText
  bool flag = false;           // kFlag
  std::vector<Node> children;  // of a list or a table
};

// Every key is taken once; Done refuses those that are left. Not thread safe.
class Table {
 public:
  // Parses a whole file.
  explicit Table(const EmbeddedFile& file);

  // A text that must be there, and must not be empty.
  std::string TakeText(std::string_view key);
  // The text `key` of [en] and of [zh]; both must be there.
  base::BilingualText TakeBilingualText(std::string_view key);
  // ["a", "b"]; empty if the key is absent.
  std::vector<std::string> TakeTexts(std::string_view key);
  // [["a", "b"], ["c"]]; no list is empty.
  std::vector<std::vector<std::string>> TakeTextLists(std::string_view key);
  // False if the key is absent.
  bool TakeFlag(std::string_view key);
  // One of these texts, as the value that stands for it.
  template <typename Value>
  Value TakeChoice(std::string_view key, std::initializer_list<std::pair<std::string_view, Value>> choices) {
    const std::string text = TakeText(key);
    for (const auto& [name, value] : choices) {
      if (name == text) return value;
    }
    Refuse(std::string(key) + " cannot be " + text);
  }
  // The table [key], which must be there.
  Table TakeTable(std::string_view key);
  // The tables [[key]], in the order of the file; at least one.
  std::vector<Table> TakeTables(std::string_view key);

  // Everything has been taken.
  void Done();

  // Ends the process: the file is wrong in the line that this table begins in.
  [[noreturn]] void Refuse(const std::string& problem) const;

 private:
  Table(std::string path, Node node);
  [[noreturn]] void Refuse(const std::string& problem, int line) const;
  std::optional<Node> Take(Node& table, std::string_view key, Node::Kind kind) const;
  Node TakeRequired(Node& table, std::string_view key, Node::Kind kind) const;
  std::string TextOf(const Node& node) const;

  std::string path_;
  Node node_;
};

}  // namespace fulldeck::texts
