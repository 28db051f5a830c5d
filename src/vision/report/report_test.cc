#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "base/text.h"
#include "report/chart.h"
#include "report/crc32c.h"
#include "report/event_file.h"
#include "report/html_text.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "temporary_folder.h"

namespace fulldeck::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// ---- scores ----

TEST(Scores, AreThoseThatAHandComputes) {
  // Rows are truth: 8 of class 0 (6 found), 2 of class 1 (1 found).
  const Scores scores = ScoresOf({2, {6, 2, 1, 1}}, {"field", "water"});
  EXPECT_DOUBLE_EQ(*scores.per_class[0].iou, 6.0 / 9);
  EXPECT_DOUBLE_EQ(*scores.per_class[1].iou, 1.0 / 4);
  EXPECT_DOUBLE_EQ(*scores.per_class[0].dice, 12.0 / 15);
  EXPECT_DOUBLE_EQ(*scores.per_class[1].precision, 1.0 / 3);
  EXPECT_DOUBLE_EQ(*scores.per_class[1].recall, 1.0 / 2);
  EXPECT_DOUBLE_EQ(*scores.per_class[1].fscore, 2 * (1.0 / 3) * 0.5 / (1.0 / 3 + 0.5));
  EXPECT_DOUBLE_EQ(scores.miou, (6.0 / 9 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(scores.accuracy, 0.7);
  EXPECT_DOUBLE_EQ(scores.mean_accuracy, (0.75 + 0.5) / 2);
  EXPECT_EQ(scores.per_class[0].truth, 8);
}

TEST(Scores, LeaveAClassOutThatIsNeitherThereNorPredicted) {
  const Scores scores = ScoresOf({3, {5, 0, 0, 0, 0, 0, 0, 0, 5}}, {"a"});
  EXPECT_FALSE(scores.per_class[1].iou.has_value());
  EXPECT_FALSE(scores.per_class[1].dice.has_value());
  EXPECT_DOUBLE_EQ(scores.miou, 1);
  EXPECT_DOUBLE_EQ(scores.mean_accuracy, 1);
  EXPECT_EQ(scores.per_class[2].name, "class 2");
  EXPECT_THAT(ScoresText(scores), HasSubstr("class 1       –"));
}

TEST(Scores, CountAClassThatIsPredictedButNotThereAsAMiss) {
  const Scores scores = ScoresOf({2, {6, 2, 0, 0}}, {});
  EXPECT_DOUBLE_EQ(*scores.per_class[1].iou, 0);
  EXPECT_DOUBLE_EQ(*scores.per_class[1].precision, 0);
  EXPECT_FALSE(scores.per_class[1].recall.has_value());
  EXPECT_DOUBLE_EQ(scores.miou, 0.375);
  EXPECT_DOUBLE_EQ(scores.mean_accuracy, 0.75);
}

TEST(Scores, OfNothingAreZero) {
  const Scores scores = ScoresOf({2, {0, 0, 0, 0}}, {"a", "b"});
  EXPECT_DOUBLE_EQ(scores.miou, 0);
  EXPECT_DOUBLE_EQ(scores.accuracy, 0);
  EXPECT_TRUE(ScoresOf({}, {}).per_class.empty());
}

// ---- event files ----

TEST(Crc32c, IsThatOfThePublishedVectors) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(Crc32c(""), 0U);
}

TEST(EventFile, KeepsLittleInMemoryAndTheRestIsInTheFile) {
  const testing::TemporaryFolder folder;
  auto file = EventFile::Create(folder.string() + "/events/deep");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::size_t empty = Contents(file->path()).size();
  ASSERT_TRUE(file->Scalar("loss", 1, 0.5).ok());
  EXPECT_EQ(Contents(file->path()).size(), empty);
  ASSERT_TRUE(file->Text("long", 1, std::string(100 << 10, 'x')).ok());
  EXPECT_GT(Contents(file->path()).size(), 100U << 10);
  ASSERT_TRUE(file->Scalar("loss", 2, 0.25).ok());
  ASSERT_TRUE(file->Flush().ok());
  EXPECT_THAT(Contents(file->path()), HasSubstr("loss"));
}

TEST(EventFile, NamesTheFolderItCannotMake) {
  const testing::TemporaryFolder folder;
  folder.Write("file", "");
  const auto file = EventFile::Create(folder.string() + "/file/events");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message,
              HasSubstr("cannot make the folder of the event files " + folder.string() + "/file/events"));
}

// ---- JSON lines ----

TEST(JsonLines, AreValidJsonWhateverIsInThem) {
  JsonLine line(7);
  line.Number("loss", 0.1).Number("lr", 1e-5).Number("nan", std::nan("")).Number("inf", -INFINITY);
  line.Integer("samples", -3).Text("name \"x\"", "a\n\xff\x01");
  EXPECT_EQ(line.Finished(),
            "{\"step\":7,\"loss\":0.1,\"lr\":1e-05,\"nan\":\"NaN\",\"inf\":\"-Infinity\",\"samples\":-3,"
            "\"name \\\"x\\\"\":\"a\\n\xEF\xBF\xBD\\u0001\"}\n");
}

TEST(JsonLines, AreCutWhereAKilledRunIsResumed) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.string() + "/metrics.jsonl";
  {
    auto lines = JsonLines::Open(path, std::nullopt);
    ASSERT_TRUE(lines.ok()) << lines.error().message;
    for (int step = 10; step <= 50; step += 10) ASSERT_TRUE(lines->Append(JsonLine(step).Number("loss", step)).ok());
  }
  std::ofstream(path, std::ios::app) << "{\"step\":60,\"lo";
  {
    auto lines = JsonLines::Open(path, 30);
    ASSERT_TRUE(lines.ok()) << lines.error().message;
    EXPECT_EQ(lines->repair().half_line_bytes, 14U);
    EXPECT_EQ(lines->repair().lines_dropped, 2U);
    ASSERT_TRUE(lines->Append(JsonLine(40).Number("loss", -1)).ok());
  }
  EXPECT_EQ(
      Contents(path),
      "{\"step\":10,\"loss\":10}\n{\"step\":20,\"loss\":20}\n{\"step\":30,\"loss\":30}\n{\"step\":40,\"loss\":-1}\n");
  // A resume at the end changes nothing; a new run renames the old file.
  ASSERT_TRUE(JsonLines::Open(path, 40).ok());
  const std::string before = Contents(path);
  ASSERT_TRUE(JsonLines::Open(path, std::nullopt).ok());
  EXPECT_EQ(Contents(path), "");
  EXPECT_EQ(Contents(path + ".old"), before);
}

TEST(JsonLines, GiveTheCurvesBack) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.string() + "/metrics.jsonl";
  folder.Write("metrics.jsonl",
               "{\"step\":1,\"loss\":2.5}\nnot "
               "json\n[1]\n{\"loss\":3}\n{\"step\":2,\"loss\":\"NaN\",\"mIoU\":0.5}\n{\"step\":3,\"lo");
  const auto curves = ReadCurves(path, {"loss", "mIoU", "lr"});
  ASSERT_TRUE(curves.ok()) << curves.error().message;
  ASSERT_EQ((*curves)[0].points.size(), 2U);
  EXPECT_EQ((*curves)[0].points[0].value, 2.5);
  EXPECT_TRUE(std::isnan((*curves)[0].points[1].value));
  ASSERT_EQ((*curves)[1].points.size(), 1U);
  EXPECT_EQ((*curves)[1].points[0].step, 2);
  EXPECT_TRUE((*curves)[2].points.empty());
  EXPECT_TRUE(ReadCurves(folder.string() + "/none", {"loss"}).ok());
  EXPECT_FALSE(JsonLines::Open(folder.string() + "/none/metrics.jsonl", 3).ok());
}

// ---- the progress line ----

Progress Example() {
  Progress progress{.step = 120, .total = 300, .loss = 0.43121, .lr = 9.2e-5, .samples_per_second = 152.4};
  progress.seconds_left = 101.7;
  progress.cards_busy = 7;
  progress.ranks = 8;
  progress.metric = 0.78123;
  return progress;
}

TEST(ProgressLine, ShowsEverythingInALog) {
  EXPECT_EQ(ProgressLine(Example()),
            "step 120/300  40%  loss 0.4312  lr 9.2e-05  152 samples/s  ETA 1:42  cards 7/8 busy  mIoU 0.7812");
  EXPECT_EQ(ProgressLine({.step = 3}), "step 3");
  EXPECT_EQ(ProgressLine({.step = 3, .ranks = 8, .ranks_busy = 8}), "step 3  ranks 8/8");
  EXPECT_EQ(ProgressLine({.step = 3, .ranks = 8, .ranks_busy = 8, .cards_busy = 5, .cards_unknown = 3}),
            "step 3  cards 5/8 busy, 3 unknown");
}

TEST(ProgressLine, FitsTheTerminalAndKeepsWhatMattersMost) {
  for (int columns = 1; columns < 120; ++columns) {
    const std::string line = TerminalProgress(Example(), columns);
    ASSERT_THAT(line, StartsWith("\r"));
    ASSERT_LE(line.size() - 1 - 3, static_cast<std::size_t>(std::max(columns - 1, 1))) << line;
  }
  EXPECT_EQ(TerminalProgress(Example(), 40), "\rstep 120/300  loss 0.4312  ETA 1:42\x1b[K");
}

TEST(ProgressLine, FormatsDurations) {
  EXPECT_EQ(FormatDuration(6.6), "0:07");
  EXPECT_EQ(FormatDuration(3 * 3600 + 5 * 60 + 9), "3:05:09");
  EXPECT_EQ(FormatDuration(2 * 86400 + 4 * 3600 + 7), "2 d 4 h");
  EXPECT_EQ(FormatDuration(INFINITY), "–");
  EXPECT_EQ(FormatDuration(-1), "–");
}

// ---- palette ----

TEST(Palette, GivesLandCoverTheColorsOfMaps) {
  const auto palette = PaletteOf({"background", "Building", "road", "water", "barren", "forest", "agricultural"});
  EXPECT_EQ(palette[0].red, 255);
  EXPECT_GT(palette[1].red, palette[1].green + 100);
  EXPECT_GT(palette[3].blue, palette[3].red + 100);
  EXPECT_GT(palette[5].green, palette[5].red + 50);
}

TEST(Palette, GivesEveryClassItsOwnColor) {
  std::vector<std::string> names = {"water", "river", "road"};
  for (int i = 0; i < 252; ++i) names.push_back("class " + std::to_string(i));
  std::set<std::vector<int>> colors;
  for (const LegendEntry& entry : PaletteOf(names)) colors.insert({entry.red, entry.green, entry.blue});
  EXPECT_EQ(colors.size(), names.size());
}

// ---- the report ----

RunReport Small() {
  RunReport report;
  report.title = "demo";
  report.outcome = "finished";
  report.metric = 0.83125;
  return report;
}

TEST(Report, HasTheLineThatProgramsRead) {
  EXPECT_THAT(TextOf(Small()), HasSubstr("\nmIoU 0.831250\n"));
  RunReport other = Small();
  other.metric_name = "accuracy";
  EXPECT_THAT(TextOf(other), HasSubstr("\naccuracy 0.831250\n"));
  other.metric.reset();
  EXPECT_THAT(TextOf(other), Not(HasSubstr("accuracy")));
}

TEST(Report, EscapesMarkup) {
  const std::string evil = "\"'><script>alert(1)</script>&\x1b[31m\xff";
  RunReport report = Small();
  report.title = report.outcome = report.metric_name = evil;
  report.facts = {{evil, evil}};
  report.curves = {{evil, {{1, 1.0}, {2, 2.0}}}};
  report.scores = ScoresOf({1, {3}}, {evil});
  report.legend = {{evil, 1, 2, 3}};
  report.examples = {{evil, "png", "png", "png", evil, "other"}};
  report.ranks = {{0, evil, 1, 1, 1, 1, 1, std::nullopt}};
  report.verified = {{evil, evil}};
  report.warnings = {evil};
  const std::string html = HtmlOf(report);
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("\x1b")));
  EXPECT_THAT(html, Not(HasSubstr("\xff")));
  EXPECT_THAT(html, HasSubstr("&quot;&#39;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;?[31m?"));
  EXPECT_THAT(TextOf(report), Not(HasSubstr("\x1b")));
}

TEST(Report, LeavesOutWhatThereIsNotAndDrawsWhatIsOdd) {
  const std::string bare = HtmlOf(Small());
  for (const char* section : {"Curves", "Classes", "Examples", "Time", "Scaling", "Verified", "warning"})
    EXPECT_THAT(bare, Not(HasSubstr(std::string("<h2>") + section))) << section;
  RunReport odd = Small();
  const double nan = std::nan("");
  odd.curves = {{"one point", {{5, 3.0}}},
                {"constant", {{1, 0.0}, {2, 0.0}}},
                {"no number", {{1, nan}}},
                {"none", {}},
                {"huge", {{1, -1e300}, {2, 1e300}}},
                {"greatest", {{1, -1.7e308}, {2, 1.7e308}}},
                {"broken", {{1, 1.0}, {2, nan}, {3, INFINITY}, {4, 2.0}}}};
  odd.ranks = {{0, "cpu", 0, 0, 0, 0, 0, std::nullopt}};
  const std::string html = HtmlOf(odd);
  EXPECT_THAT(html, Not(HasSubstr(">nan<")));
  EXPECT_THAT(html, Not(HasSubstr("inf ")));
  EXPECT_THAT(html, HasSubstr("one point"));
  EXPECT_THAT(html, Not(HasSubstr("no number")));
  EXPECT_THAT(html, HasSubstr("2 of 4 values are not finite"));
}

TEST(Report, ComparesWithASingleCardOnlyIfItWasMeasured) {
  RunReport report = Small();
  report.samples_per_second = 60;
  report.ranks.resize(4);
  EXPECT_FALSE(ScalingOf(report).has_value());
  report.single_card_samples_per_second = 20;
  EXPECT_DOUBLE_EQ(ScalingOf(report)->factor, 3);
  EXPECT_DOUBLE_EQ(ScalingOf(report)->efficiency, 0.75);
  EXPECT_THAT(TextOf(report), HasSubstr("4 cards are 3.00 times as fast, 75 % of 4 times"));
}

TEST(Report, IsWrittenWholeOrNotAtAll) {
  const testing::TemporaryFolder folder;
  const std::string there = folder.string() + "/run";
  ASSERT_TRUE(WriteReport(there, Small()).ok());
  EXPECT_THAT(Contents(there + "/report.txt"), HasSubstr("mIoU 0.831250"));
  EXPECT_THAT(Contents(there + "/report.html"), HasSubstr("0.8313"));
  folder.Write("file", "");
  const auto failed = WriteReport(folder.string() + "/file", Small());
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("cannot "));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(there)) ++files;
  EXPECT_EQ(files, 2);
}

TEST(Chart, HasRoundTicksThatLieInside) {
  EXPECT_THAT(NiceTicks(0, 1, 5),
              ::testing::ElementsAre(0, 0.2, ::testing::DoubleEq(0.4), ::testing::DoubleEq(0.6), 0.8, 1));
  EXPECT_THAT(NiceTicks(3, 47, 4), ::testing::ElementsAre(20, 40));
  EXPECT_LE(NiceTicks(-1e300, 1e300, 5).size(), 12U);
}

TEST(Chart, WritesSmallAndGreatNumbersShort) {
  const std::string small = CurveChart({"lr", {{1, 0.0}, {2, 1.5e-5}}}, {});
  EXPECT_THAT(small, HasSubstr(">5e-6<"));
  EXPECT_THAT(small, HasSubstr(">1.5e-5<"));
  EXPECT_THAT(CurveChart({"n", {{1, 0.0}, {2, 1e7}}}, {}), HasSubstr(">1e7<"));
  EXPECT_THAT(CurveChart({"n", {{1, 0.0}, {2, 40000}}}, {}), HasSubstr(">40,000<"));
}

TEST(Chart, KeepsPeaksWhenItDownsamples) {
  std::vector<Point> points;
  for (int i = 0; i < 100000; ++i) points.push_back({i, i == 54321 ? 99.0 : std::sin(i * 0.01)});
  const std::vector<Point> downsampled = Downsampled(points, 350);
  EXPECT_LE(downsampled.size(), 700U);
  double greatest = 0;
  for (std::size_t i = 0; i < downsampled.size(); ++i) {
    greatest = std::max(greatest, downsampled[i].value);
    if (i > 0) {
      ASSERT_LT(downsampled[i - 1].step, downsampled[i].step);
    }
  }
  EXPECT_EQ(greatest, 99.0);
}

TEST(Html, WritesBase64AsItIsPublished) {
  EXPECT_EQ(PngDataUri("foobar"), "data:image/png;base64,Zm9vYmFy");
  EXPECT_EQ(PngDataUri("fooba"), "data:image/png;base64,Zm9vYmE=");
  EXPECT_EQ(PngDataUri("foob"), "data:image/png;base64,Zm9vYg==");
  EXPECT_EQ(base::FormatThousands(-1234567), "-1,234,567");
  EXPECT_EQ(base::FormatThousands(999), "999");
}

}  // namespace
}  // namespace fulldeck::report
