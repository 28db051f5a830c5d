#include "config/command_line.h"

#include <gmock/gmock.h>

namespace fulldeck::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string PredictError(std::vector<std::string> words) {
  const auto arguments = ParsePredictArguments(std::move(words));
  return arguments.ok() ? "" : arguments.error().message;
}

TEST(PredictArguments, AreReadInAnyOrder) {
  const auto arguments = ParsePredictArguments(
      {"a.png", "--window=64", "--checkpoint", "job", "--flips", "--stride", "20", "--", "--b.png"});
  ASSERT_TRUE(arguments.ok()) << arguments.error().message;
  EXPECT_THAT(arguments->images, ElementsAre("a.png", "--b.png"));
  EXPECT_EQ(arguments->checkpoint, "job");
  EXPECT_EQ(arguments->output, ".");
  EXPECT_EQ(arguments->window, 64);
  EXPECT_EQ(arguments->stride, 20);
  EXPECT_TRUE(arguments->flips);
  EXPECT_FALSE(arguments->json);
  EXPECT_EQ(arguments->help, "");
}

TEST(PredictArguments, ThatAreWrongAreRefused) {
  EXPECT_EQ(PredictError({"--widow", "64"}),
            "unknown option '--widow'; did you mean --window? See: fulldeck-predict --help");
  EXPECT_THAT(PredictError({"--xyzzyq"}), StartsWith("unknown option '--xyzzyq'."));
  EXPECT_EQ(PredictError({"--checkpoint=job", "a.png", "--window", "100"}),
            "--window: 100 is not a multiple of 16 from 16 to 16384. See: fulldeck-predict --help");
  for (const char* window : {"0", "-16", "16400", "64px", ""})
    EXPECT_THAT(PredictError({"--checkpoint=job", "a.png", std::string("--window=") + window}),
                HasSubstr("--window: "));
  EXPECT_THAT(PredictError({"--checkpoint=job", "a.png", "--stride", "1e3"}),
              StartsWith("--stride: 1e3 is not a whole number from 1 to 16384."));
  EXPECT_THAT(PredictError({"--checkpoint=job", "a.png", "--output"}), StartsWith("--output: "));
  EXPECT_THAT(PredictError({"a.png"}), StartsWith("--checkpoint is required."));
  EXPECT_THAT(PredictError({"--checkpoint", "x"}), StartsWith("IMAGE is required."));
}

TEST(PredictArguments, HelpNamesEveryOption) {
  const auto arguments = ParsePredictArguments({"--help"});
  ASSERT_TRUE(arguments.ok()) << arguments.error().message;
  for (const char* name :
       {"--checkpoint", "--output", "--window", "--stride", "--flips", "--newest", "--device", "--json"})
    EXPECT_THAT(arguments->help, HasSubstr(name));
}

TEST(PredictArguments, SurviveTheWayThroughACommandLine) {
  PredictArguments given;
  given.checkpoint = "-job";
  given.output = "--out";
  given.images = {"-x.png", "--", "a b.png"};
  given.window = 64;
  given.stride = 1;
  given.newest = true;
  given.device = "gcu:1";
  const auto read = ParsePredictArguments(PredictCommandLine(given));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(PredictCommandLine(*read), PredictCommandLine(given));
  EXPECT_THAT(read->images, ElementsAre("-x.png", "--", "a b.png"));
}

TEST(PredictArguments, AStrideBeyondTheWindowIsAProblem) {
  EXPECT_EQ(StrideProblem(64, 64), std::nullopt);
  EXPECT_EQ(StrideProblem(65, 64), "--stride 65 is more than the window of 64 pixels, and would leave gaps");
}

TEST(TrainArguments, AreAConfigAndMayResume) {
  const auto arguments = ParseTrainArguments({"--recipe", "work_dirs/demo/recipe.resolved", "--resume"});
  ASSERT_TRUE(arguments.ok()) << arguments.error().message;
  EXPECT_EQ(arguments->resolved_config, "work_dirs/demo/recipe.resolved");
  EXPECT_TRUE(arguments->resume);
  EXPECT_THAT(ParseTrainArguments({"--help"})->help, HasSubstr("--resume"));
  EXPECT_THAT(ParseTrainArguments({"--resume"}).error().message, StartsWith("--recipe is required."));
  EXPECT_THAT(ParseTrainArguments({"--recipe"}).error().message, HasSubstr("--recipe"));
  EXPECT_THAT(ParseTrainArguments({"--recipe", "x", "y"}).error().message, StartsWith("unexpected argument 'y'."));
  EXPECT_THAT(ParseTrainArguments({"--recipe", "x", "--resum"}).error().message, HasSubstr("did you mean --resume?"));
}

}  // namespace
}  // namespace fulldeck::config
