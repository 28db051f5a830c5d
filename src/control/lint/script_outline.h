// The structure of a Python script for the doctor: its statements with their blocks, its calls with their arguments,
// and the full names of its imports. Sufficient to decide whether a call is made only on rank 0. It is not a parser,
// and accepts invalid Python.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lint/script_tokens.h"

namespace fulldeck::lint {

// Tokens [begin, end) of the script.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool empty() const { return begin >= end; }
};

struct Statement {
  Range tokens;
  int line = 0;
  int parent = -1;         // the header (if, for, def …) of the enclosing block; -1: the file
  int partner = -1;        // of else, elif, except, finally: the preceding if, elif, for, try …
  std::string_view word;   // its first word after `async`: "if", "def", "return", a name
  bool is_header = false;  // its tokens end with the colon
};

struct Argument {
  std::string_view keyword;  // empty: positional
  Range value;
  int stars = 0;  // of *args, **options
};

struct Call {
  // As imported: "torch.distributed.init_process_group". If the callee is not a plain name, the first part is empty:
  // ".cuda" for make().cuda().
  std::string callee;
  std::string method;     // the part after the last dot: "init_process_group"
  Range callee_tokens;    // of the plain name; empty if there is none
  Range arguments_range;  // between the brackets
  std::vector<Argument> arguments;
  int statement = -1;
  int line = 0;
};

struct Assignment {
  std::string_view target;  // the last name: `b` of a.b = …
  Range target_tokens;
  Range value;
  int statement = -1;
};

class Script {
 public:
  // Copies `source`.
  explicit Script(std::string source);
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  const std::vector<Token>& tokens() const { return tokens_; }
  const std::vector<Statement>& statements() const { return statements_; }
  const std::vector<Call>& calls() const { return calls_; }
  const std::vector<Assignment>& assignments() const { return assignments_; }
  // Without surrounding whitespace; empty if there is no such line.
  std::string_view Line(int number) const;

  // A dotted name with its first part replaced by what was imported: dist.barrier → torch.distributed.barrier.
  std::string FullName(Range dotted) const;
  // Whether this module, or something from it, is imported anywhere.
  bool Imports(std::string_view module) const;

  // nullptr if there is no such argument.
  static const Argument* Find(const Call& call, std::string_view keyword, std::optional<std::size_t> position);
  static bool HasStars(const Call& call);
  // The string in a range that consists of one or more adjacent string literals without f-strings.
  std::optional<std::string> Text(Range range) const;
  std::optional<long> Number(Range range) const;
  // Whether `fits` accepts a name in the range, including names in f-strings and strings that are themselves names
  // ("RANK"). Names are passed in lower case.
  bool Mentions(Range range, const std::function<bool(std::string_view)>& fits) const;
  bool MentionsSubstring(Range range, std::string_view part) const;  // a name that contains this, in lower case
  bool MentionsText(Range range, std::string_view text) const;       // a string that equals this
  bool Has(Range range, std::string_view word) const;                // a token outside strings

  // The expressions that decide whether the statement is reached: conditions of if, elif and while (including those
  // before an else), the heads of with and for, and the if of an early return before it.
  std::vector<Range> ConditionsOf(int statement) const;
  // The enclosing def; -1: none.
  int FunctionOf(int statement) const;
  std::string_view NameOfFunction(int def) const;
  // Whether `statement` is in the block of `header`, at any depth.
  bool IsInside(int statement, int header) const;
  // Decorators of a def.
  std::vector<Range> DecoratorsOf(int def) const;

 private:
  void ReadStatements();
  void ReadLogicalLine(Range line);
  std::size_t ColonOf(Range line) const;
  int Add(Range tokens, bool is_header, int parent);
  bool LeavesItsBlock(int header) const;
  void ReadImports();
  void ReadCalls();
  void ReadAssignments();
  std::vector<Argument> ArgumentsIn(Range range) const;

  const std::string source_;
  std::vector<Token> tokens_;
  std::vector<std::size_t> match_;  // for an opening bracket: its closing one, or the end
  std::vector<std::string_view> lines_;
  std::vector<Statement> statements_;
  std::vector<int> statement_of_;  // by token
  std::vector<Call> calls_;
  std::vector<Assignment> assignments_;
  std::map<std::string, std::string, std::less<>> imported_;
  std::vector<std::string> modules_;
  std::vector<std::vector<int>> children_;  // of the file, then of each statement
  std::vector<std::vector<int>> exits_;     // children that may leave the block: if …: return, assert
  // While reading statements: the open blocks with the indentation of their headers.
  struct Open {
    int header;
    int column;
  };
  std::vector<Open> open_;
};

}  // namespace fulldeck::lint
