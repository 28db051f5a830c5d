#include "lint/script_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lint/script_outline.h"

namespace fulldeck::lint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> WordsOf(std::string_view source) {
  std::vector<std::string> words;
  for (const Token& token : Tokenize(source)) {
    words.emplace_back(token.kind == TokenKind::kNewline ? "\n" : std::string(token.text));
  }
  return words;
}

TEST(ScriptTokens, CommentsAndContentsOfStringsAreNoTokens) {
  EXPECT_THAT(WordsOf("a # b 'c\n'# d' # \"\n"), ElementsAre("a", "\n", "'# d'", "\n"));
  EXPECT_THAT(WordsOf("x = '''one\n# two \" ''\n''' # three\n"),
              ElementsAre("x", "=", "'''one\n# two \" ''\n'''", "\n"));
  EXPECT_THAT(WordsOf("  # nothing\n\n"), IsEmpty());
}

TEST(ScriptTokens, StringsEndWherePythonEndsThem) {
  EXPECT_THAT(WordsOf(R"('a\'b' "c\\" rb"d\" x)"), ElementsAre(R"('a\'b')", R"("c\\")", R"(rb"d\" x)", "\n"))
      << "a backslash keeps a quote in raw strings too; one that is not closed ends with its line";
  EXPECT_THAT(WordsOf("'open\nnext"), ElementsAre("'open", "\n", "next", "\n"));
  EXPECT_THAT(WordsOf("'one\\\ntwo' x"), ElementsAre("'one\\\ntwo'", "x", "\n"));
  const auto tokens = Tokenize("u'a' B\"\"\"b\"c\"\"\" name'd'");
  ASSERT_EQ(tokens.size(), 5u);
  EXPECT_EQ(tokens[0].content, "a");
  EXPECT_EQ(tokens[1].content, "b\"c");
  EXPECT_TRUE(tokens[2].IsName()) << "no prefix of a string";
  EXPECT_EQ(tokens[3].content, "d");
}

TEST(ScriptTokens, FormattedStringsHoldExpressions) {
  EXPECT_THAT(WordsOf(R"(f"{a["b"]} {{c}}" d)"), ElementsAre(R"(f"{a["b"]} {{c}}")", "d", "\n")) << "since Python 3.12";
  EXPECT_THAT(NamesInside(Tokenize("f'{{no}} {rank:>{width}} text {self.x!r}'")[0]),
              ElementsAre("rank", "width", "self", "x", "r"));
  EXPECT_THAT(NamesInside(Tokenize("'{rank}'")[0]), IsEmpty());
}

TEST(ScriptTokens, LinesAreJoinedInBracketsAndByBackslashes) {
  EXPECT_THAT(WordsOf("f(a,\n  b)\nc = \\\n  d\n"),
              ElementsAre("f", "(", "a", ",", "b", ")", "\n", "c", "=", "d", "\n"));
  const auto tokens = Tokenize("f(a,\r\n  b)\r\nc\r\n");
  EXPECT_EQ(tokens[4].line, 2);
  EXPECT_EQ(tokens[7].text, "c");
  EXPECT_EQ(tokens[7].line, 3);
  EXPECT_EQ(Tokenize("'''\n\n'''\nx")[2].line, 4);
}

TEST(ScriptTokens, NumbersAndOperatorsAreTakenWhole) {
  EXPECT_THAT(WordsOf("1e-3+0xe+1_0j .5 a**=b//c->d:=e..."),
              ElementsAre("1e-3", "+", "0xe", "+", "1_0j", ".5", "a", "**=", "b", "//", "c", "->", "d", ":=", "e",
                          "...", "\n"));
}

TEST(ScriptTokens, AnythingCanBeRead) {
  for (const std::string_view source :
       {std::string_view("\0\1\377", 3), std::string_view("))]}"), std::string_view("f'{f\"{f'{"),
        std::string_view("\\"), std::string_view("'''"), std::string_view("\xef\xbb\xbfx")}) {
    const Script script{std::string(source)};
    EXPECT_LE(script.statements().size(), 2u);
  }
}

// ---- the outline ----

TEST(ScriptOutline, StatementsKnowTheirBlocks) {
  const Script script("if a:\n    if b: c(); d()\n    else:\n        e()\nelif f:\n\tg()\nh()\n");
  const auto conditions = [&](std::string_view name) {
    for (const Call& call : script.calls()) {
      if (call.callee == name) return script.ConditionsOf(call.statement).size();
    }
    return std::size_t{99};
  };
  EXPECT_EQ(conditions("c"), 2u);
  EXPECT_EQ(conditions("d"), 2u);
  EXPECT_EQ(conditions("e"), 3u) << "else, its if, and the one around";
  EXPECT_EQ(conditions("g"), 2u) << "elif, and the if before";
  EXPECT_EQ(conditions("h"), 0u);
}

TEST(ScriptOutline, AnEarlyReturnIsACondition) {
  const Script script("def f():\n    if rank != 0:\n        return\n    save()\n");
  ASSERT_EQ(script.calls().size(), 1u);
  const auto conditions = script.ConditionsOf(script.calls()[0].statement);
  ASSERT_EQ(conditions.size(), 1u);
  EXPECT_TRUE(script.MentionsSubstring(conditions[0], "rank"));
  EXPECT_EQ(script.NameOfFunction(script.FunctionOf(script.calls()[0].statement)), "f");
}

TEST(ScriptOutline, CallsHaveTheirFullNamesAndArguments) {
  const Script script(
      "import torch.distributed as dist\nfrom torch.nn.parallel import (DistributedDataParallel as DDP,\n  other)\n"
      "d = torch.distributed\n"
      "dist.init_process_group('a' 'b', rank=lambda x: (x, 1), *rest)\nDDP(m)[0](3)\nmake().cuda()\nd.barrier()\n");
  std::vector<std::string> names;
  for (const Call& call : script.calls()) names.push_back(call.callee);
  EXPECT_THAT(names, ElementsAre("torch.distributed.init_process_group", "torch.nn.parallel.DistributedDataParallel",
                                 "", "make", ".cuda", "torch.distributed.barrier"));
  const Call& first = script.calls()[0];
  ASSERT_EQ(first.arguments.size(), 3u);
  EXPECT_EQ(script.Text(Script::Find(first, "backend", 0)->value), "ab");
  EXPECT_EQ(Script::Find(first, "rank", std::nullopt)->keyword, "rank");
  EXPECT_TRUE(Script::HasStars(first));
  EXPECT_TRUE(script.Imports("torch.nn"));
  EXPECT_FALSE(script.Imports("torch.n"));
}

TEST(ScriptOutline, AssignmentsHaveTargetsAndValues) {
  const Script script("a.b = c = 1\nx: int = 2\np, q = f(k=3)\nif y == 4: z = lambda v=5: v\n");
  std::vector<std::string> targets;
  for (const Assignment& assignment : script.assignments()) targets.emplace_back(assignment.target);
  EXPECT_THAT(targets, ElementsAre("b", "c", "x", "p", "q", "z"));
  EXPECT_EQ(script.Number(script.assignments()[2].value), 2);
}

}  // namespace
}  // namespace fulldeck::lint
