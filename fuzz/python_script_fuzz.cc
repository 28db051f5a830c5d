#include "base/check.h"
#include "fuzz_target.h"
#include "lint/script_traps.h"

// Tokens are in source order, statements contain existing text, and every hit has a line number.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::lint;
  const std::string_view text = fulldeck::fuzz::AsText(data, size);
  const char* end = text.data();
  int line = 1;
  for (const Token& token : Tokenize(text)) {
    if (token.kind == TokenKind::kNewline) continue;
    FULLDECK_CHECK(!token.text.empty() && token.text.data() >= end);
    end = token.text.data() + token.text.size();
    FULLDECK_CHECK(end <= text.data() + text.size());
    FULLDECK_CHECK(token.line >= line);
    line = token.line;
    if (token.kind == TokenKind::kString) {
      FULLDECK_CHECK(token.content.data() >= token.text.data() && token.content.data() + token.content.size() <= end);
    }
    NamesInside(token);
  }
  const Script script{std::string(text)};
  for (const Statement& statement : script.statements()) {
    FULLDECK_CHECK(statement.tokens.begin < statement.tokens.end && statement.tokens.end <= script.tokens().size());
  }
  for (const Call& call : script.calls()) FULLDECK_CHECK(call.arguments_range.end <= script.tokens().size());
  const ScriptMachine machine{false, 8, 8, 8, "gcu"};
  for (const TrapHit& hit : TrapsIn(script, "fuzz.py", "/nonexistent", machine)) {
    FULLDECK_CHECK(hit.line >= 1 && hit.text.find('\x1b') == std::string::npos);
  }
  return 0;
}
