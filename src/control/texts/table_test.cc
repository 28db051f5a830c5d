#include "texts/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::texts {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Table Read(std::string_view text) {
  return Table({"data/x.toml", text});
}

TEST(Table, GivesTheTextsOfBothLanguages) {
  Table table = Read("id = \"C5\"\n[en]\nfix = \"stop it\"\n[zh]\nfix = \"停掉它\"\n");
  EXPECT_EQ(table.TakeText("id"), "C5");
  const base::BilingualText fix = table.TakeBilingualText("fix");
  EXPECT_EQ(fix.english, "stop it");
  EXPECT_EQ(fix.chinese, "停掉它");
  table.Done();
}

TEST(Table, GivesListsAndFlagsAndWhatIsAbsentIsEmpty) {
  Table table = Read("any_of = [[\"a\", \"b\"], ['\"c\"']]\nunless = [\"\\nd\"]\nyes = true\n");
  EXPECT_THAT(table.TakeTextLists("any_of"), ElementsAre(ElementsAre("a", "b"), ElementsAre("\"c\"")));
  EXPECT_THAT(table.TakeTexts("unless"), ElementsAre("\nd"));
  EXPECT_TRUE(table.TakeFlag("yes"));
  EXPECT_FALSE(table.TakeFlag("no"));
  EXPECT_THAT(table.TakeTexts("other"), IsEmpty());
  EXPECT_THAT(table.TakeTextLists("others"), IsEmpty());
  table.Done();
}

TEST(Table, GivesTablesInTheOrderOfTheFile) {
  Table table = Read("[[rule]]\nid = \"b\"\n[rule.en]\nfix = \"x\"\n[rule.zh]\nfix = \"y\"\n[[rule]]\nid = \"a\"\n");
  std::vector<Table> rules = table.TakeTables("rule");
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0].TakeText("id"), "b");
  EXPECT_EQ(rules[0].TakeBilingualText("fix").chinese, "y");
  EXPECT_EQ(rules[1].TakeText("id"), "a");
  for (Table& rule : rules) rule.Done();
  table.Done();
}

TEST(Table, GivesATableAndAChoice) {
  Table table = Read("weight = \"symptom\"\n[log]\nany_of = [['x']]\n");
  EXPECT_EQ(table.TakeChoice<int>("weight", {{"cause", 1}, {"symptom", 2}}), 2);
  EXPECT_THAT(table.TakeTable("log").TakeTextLists("any_of"), ElementsAre(ElementsAre("x")));
  table.Done();
}

TEST(TableDeathTest, NamesTheFileAndTheLineOfWhatIsWrong) {
  const auto read = [](std::string_view text) {
    Table table = Read(text);
    table.TakeText("id");
    table.TakeBilingualText("fix");
    table.TakeTexts("unless");
    table.TakeTextLists("any_of");
    table.TakeFlag("yes");
    table.Done();
  };
  const std::string en = "[en]\nfix = \"x\"\n";
  const std::string zh = "[zh]\nfix = \"y\"\n";
  const std::string id = "id = \"a\"\n";
  EXPECT_DEATH(read("id = \"a\"\nfix = \"no end\n"), "data/x.toml:2: 'TOML: ");
  EXPECT_DEATH(read(en + zh), "data/x.toml:1: 'the key id is missing'");
  EXPECT_DEATH(read("id = \"\"\n" + en + zh), "data/x.toml:1: 'an empty text");
  EXPECT_DEATH(read(id + en), "data/x.toml:1: 'the table zh is missing'");
  EXPECT_DEATH(read(id + en + "[zh]\n"), "data/x.toml:4: 'the key fix is missing in zh'");
  EXPECT_DEATH(read(id + en + zh + "cause = \"z\"\n"), "data/x.toml:6: 'there is no key cause in zh'");
  EXPECT_DEATH(read(id + "other = \"a\"\n" + en + zh), "data/x.toml:2: 'there is no key other'");
  EXPECT_DEATH(read(id + "yes = \"a\"\n" + en + zh), "data/x.toml:2: 'yes must be true or false'");
  EXPECT_DEATH(Read("\nid = \"a\"\n").TakeChoice<int>("id", {{"b", 1}}), "data/x.toml:1: 'id cannot be a'");
  EXPECT_DEATH(Read(id).TakeTable("log"), "data/x.toml:1: 'the key log is missing'");
  EXPECT_DEATH(read(id + "unless = [1]\n" + en + zh), "data/x.toml:2: ' is no text");
  EXPECT_DEATH(read(id + "any_of = [\n  \"a\",\n]\n" + en + zh), "data/x.toml:3: 'an empty list");
}

}  // namespace
}  // namespace fulldeck::texts
