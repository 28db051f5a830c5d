#include "diagnosis/known_failures/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "fixture_text.h"

namespace fulldeck::diagnosis {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> LogNames() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(FULLDECK_FIXTURES) + "/logs")) {
    names.push_back(file.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class RecordedLog : public ::testing::TestWithParam<std::string> {};

// The file name gives the expected first entry: C5-port.txt; clean-… must have no findings.
TEST_P(RecordedLog, IsExplainedByTheEntryThatItsNameGives) {
  const std::vector<Finding> findings = ExplainLog(testing::FixtureText("logs/" + GetParam()));
  const std::string expected = GetParam().substr(0, GetParam().find('-'));
  if (expected == "clean") {
    EXPECT_THAT(findings, IsEmpty()) << findings.front().entry->id << ": " << findings.front().excerpt;
    return;
  }
  ASSERT_THAT(findings, Not(IsEmpty()));
  EXPECT_EQ(findings.front().entry->id, expected) << findings.front().excerpt;
}

INSTANTIATE_TEST_SUITE_P(Logs, RecordedLog, ::testing::ValuesIn(LogNames()), [](const auto& param_info) {
  std::string name = param_info.param.substr(0, param_info.param.rfind('.'));
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
});

TEST(Catalogue, HasDistinctIdsWithTextsInBothLanguagesAndALogForEach) {
  std::set<std::string> with_log;
  for (const std::string& name : LogNames()) with_log.insert(name.substr(0, name.find('-')));
  std::set<std::string_view> ids;
  for (const CatalogueEntry& entry : Catalogue()) {
    EXPECT_TRUE(ids.insert(entry.id).second) << entry.id << " stands twice";
    EXPECT_THAT(entry.any_of, Not(IsEmpty())) << entry.id;
    EXPECT_EQ(with_log.count(std::string(entry.id)), 1U) << entry.id << " has no log under tests/fixtures/logs";
    EXPECT_FALSE(entry.title.empty()) << entry.id;
    for (const Explanation& explanation : {entry.english, entry.chinese}) {
      EXPECT_GT(std::string_view(explanation.cause).size(), 10U) << entry.id;
      EXPECT_GT(std::string_view(explanation.fix).size(), 10U) << entry.id;
    }
    EXPECT_GT(static_cast<unsigned char>(entry.chinese.cause[0]), 0U) << entry.id;
  }
}

TEST(Catalogue, HasAnEntryForEachFileOfTheTree) {
  std::set<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(FULLDECK_FIXTURES "/../../data/failures"))
    files.insert(file.path().filename().string());
  std::set<std::string> entries;
  for (const CatalogueEntry& entry : Catalogue()) entries.insert(entry.id + ".toml");
  EXPECT_EQ(entries, files);
}

TEST(Catalogue, IsSortedByLetterAndNumber) {
  std::vector<std::string> ids;
  for (const CatalogueEntry& entry : Catalogue()) ids.push_back(entry.id);
  const auto place = [&](const char* id) { return std::find(ids.begin(), ids.end(), id) - ids.begin(); };
  EXPECT_LT(place("A3"), place("A3b"));
  EXPECT_LT(place("A3b"), place("A4"));
  EXPECT_LT(place("C2"), place("C10"));
  EXPECT_LT(place("C10"), place("D1"));
}

TEST(Catalogue, CoversTheFailuresThatLeaveAText) {
  for (const char* id :
       {"A1",  "A2",  "A3",  "A3b", "A4",  "A5",  "B1", "B2", "B4", "B5", "C2", "C3", "C5",  "C7",  "C8",  "C10",
        "D1",  "D2",  "D4",  "D8",  "E1",  "E2",  "E3", "E5", "E7", "E9", "F1", "F2", "F4",  "F5",  "G1",  "G2",
        "G4",  "H1",  "H2",  "I1",  "I2",  "I3",  "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13",
        "I14", "I15", "I16", "I17", "I18", "I19", "J1", "J2", "J3", "J4", "J5", "J6", "C1",  "C6",  "F6"}) {
    EXPECT_NE(FindEntry(id), nullptr) << id;
  }
  EXPECT_EQ(FindEntry("Z9"), nullptr);
}

TEST(Explain, ReportsTheLineAndHowOften) {
  const auto findings = ExplainLog("fine\nRuntimeError: EADDRINUSE\nfine\nbind: Address already in use\n");
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].entry->id, "C5");
  EXPECT_EQ(findings[0].first_line, 2U);
  EXPECT_EQ(findings[0].times, 2U);
  EXPECT_EQ(findings[0].excerpt, "RuntimeError: EADDRINUSE");
}

TEST(Explain, ReportsALaunchersSummaryOnlyWhenTheLogHasNothingElse) {
  const std::string summary =
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n  error_file: <N/A>\n";
  const auto alone = ExplainLog(summary);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].entry->id, "I4");
  EXPECT_THAT(ExplainLog("TypeError: save_model() got an unexpected keyword argument 'epoch'\n" + summary), IsEmpty());
  EXPECT_THAT(ExplainLog("[rank3]: ValueError: bad crop size\n" + summary), IsEmpty());
}

TEST(Explain, SeesThroughColors) {
  const auto findings = ExplainLog("\x1b[31mAddress \x1b[1malready in use\x1b[0m");
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].excerpt, "Address already in use");
}

TEST(Explain, ReadsALogInChunksAsInOne) {
  LogExplainer explainer;
  for (const char letter : std::string("x\nAddress already in use\ny")) explainer.Feed({&letter, 1});
  const auto findings = explainer.Finish();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].first_line, 2U);
  EXPECT_EQ(explainer.lines(), 3U);
}

TEST(Explain, KeepsLittleOfALineWithoutEnd) {
  LogExplainer explainer;
  const std::string chunk(1 << 20, 'x');
  for (int i = 0; i < 64; ++i) explainer.Feed(chunk);
  explainer.Feed("\nAddress already in use\n");
  const auto findings = explainer.Finish();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].first_line, 2U);
}

TEST(Explain, DistinguishesACardThatOthersHoldFromAModelThatIsTooBig) {
  const auto held = ExplainLog(
      "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 15.00 MiB "
      "already "
      "allocated; 10.69 MiB free; 22.00 MiB reserved in total by PyTorch)");
  ASSERT_THAT(held, Not(IsEmpty()));
  EXPECT_EQ(held.front().entry->id, "C8");
  const auto big = ExplainLog(
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.76 GiB total capacity; 9.50 GiB already "
      "allocated; 100.00 MiB free; 9.80 GiB reserved in total by PyTorch)");
  ASSERT_THAT(big, Not(IsEmpty()));
  EXPECT_EQ(big.front().entry->id, "I1");
}

}  // namespace
}  // namespace fulldeck::diagnosis
