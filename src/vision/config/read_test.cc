#include "config/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "config/checks.h"
#include "config/keys.h"
#include "model_spec/backbones.h"

namespace fulldeck::config {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kSmallest[] = "name = \"small\"\nsteps = 100\ntrain.warmup = 10\n";

std::string ErrorOf(std::string_view text, const std::vector<std::string>& assignments = {}) {
  const auto config = ReadToml(text, "job.toml", assignments);
  return config ? "accepted" : config.error().message;
}

TEST(Config, DefaultsOfWarmUpAndLogFitJobsOfAnyLength) {
  // {steps, warm-up, log interval}
  const std::int64_t rows[][3] = {{1, 0, 1}, {8, 0, 1}, {50, 5, 2}, {300, 30, 15}, {1000, 100, 50}, {40'000, 1000, 50}};
  for (const auto& row : rows) {
    const auto config = ReadToml("name = \"small\"\nsteps = " + std::to_string(row[0]) + "\n", "job.toml", {});
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(WarmupSteps(config->train, row[0]), row[1]) << row[0];
    EXPECT_EQ(LogInterval(config->log, row[0]), row[2]) << row[0];
  }
  Config asked;
  asked.train.warmup = 7;
  asked.log.every = 9;
  EXPECT_EQ(WarmupSteps(asked.train, 50), 7);
  EXPECT_EQ(LogInterval(asked.log, 50), 9);
  EXPECT_THAT(ErrorOf(kSmallest, {"log.every=0"}), HasSubstr("log.every = 0 would log nothing"));
}

TEST(Config, HasTheDefaultsOfItsHeader) {
  const auto config = ReadToml("name = \"small\"\nsteps = 2000\n", "job.toml", {});
  ASSERT_TRUE(config) << config.error().message;
  Config expected;
  expected.name = "small";
  expected.steps = 2000;
  EXPECT_EQ(*config, expected);
}

TEST(Config, ReportsAllErrorsWithTheirLocations) {
  const std::string error = ErrorOf(
      "name = \"x\"\n"
      "stepz = 100\n"
      "learning_rate = 1e-3\n"
      "[train]\n"
      "batch = \"two\"\n"
      "  lr = 100\n"
      "batch_size = 2\n"
      "betas = [0.9]\n"
      "precision = \"bf-16\"\n"
      "[modle]\n"
      "backbone = 3\n"
      "[data]\n"
      "bands = [1, 2.5]\n"
      "flip = true\n"
      "classes = \"road\"\n"
      "zzqx = 1979-05-27\n"
      "sets = [[1]]\n");
  EXPECT_EQ(
      error,
      "job.toml:2:1: there is no key \"stepz\"; did you mean \"steps\"?\n"
      "job.toml:3:1: there is no key \"learning_rate\"; did you mean \"train.lr\" (key lr of [train])?\n"
      "job.toml:5:1: train.batch must be a whole number, not the text \"two\"\n"
      "job.toml:6:3: train.lr must be within 1e-12 … 10, not 100\n"
      "job.toml:7:1: there is no key \"train.batch_size\"; did you mean \"train.batch\"?\n"
      "job.toml:8:1: train.betas must be a list of two numbers, not a list of 1\n"
      "job.toml:9:1: train.precision must be \"fp32\", \"bf16\" or \"fp16\", not \"bf-16\"; did you mean \"bf16\"?\n"
      "job.toml:10:2: there is no table \"modle\"; did you mean \"model\"?\n"
      "job.toml:13:1: data.bands must be a list of whole numbers, and holds 2.5\n"
      "job.toml:14:1: data.flip must be a number, not true\n"
      "job.toml:15:1: data.classes must be a list of texts, not the text \"road\"\n"
      "job.toml:16:1: there is no key \"data.zzqx\"; see docs/recipes.md\n"
      "job.toml:17:1: data.sets must be a list of texts, and holds a list");
}

TEST(Config, RefusesWhatIsNoToml) {
  EXPECT_THAT(ErrorOf("name = \"x\"\nsteps = = 3\n"), HasSubstr("job.toml:2:9: this is no TOML: "));
  EXPECT_THAT(ErrorOf("name = \"x\"\nname = \"y\"\n"), HasSubstr("this is no TOML"));
  EXPECT_THAT(ErrorOf(std::string(kMaxConfigBytes + 1, '#')), HasSubstr("is larger than 1 MiB"));
  EXPECT_THAT(ErrorOf("train = 3\n"), HasSubstr("train is a table of keys: write train.KEY, or [train] above them"));
  EXPECT_THAT(ErrorOf("name = { a = 1 }\n"), HasSubstr("name must be text, not a table"));
}

TEST(Config, RefusesWhatIsNestedTooDeepInsteadOfRunningOutOfStack) {
  std::string key = "a";
  for (int i = 0; i < 120'000; ++i) key += ".a";
  const std::string quoted = "\"a\"." + key;
  const std::string brackets(120'000, '[');
  for (const std::string& text : {"[" + key + "]\n", "[[" + key + "]]\n", key + " = 1\n", "x = {" + key + " = 1}\n",
                                  quoted + " = 1\n", "x = " + brackets, "a = \"\"\"\n\"\"\"\n[" + key + "]\n"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("is nested deeper than 32 levels"));
  }
  EXPECT_THAT(ErrorOf(kSmallest, {"data.bands=" + brackets}), HasSubstr("is nested deeper than 32 levels"));
  // Dots and brackets in strings, comments and numbers are not nesting.
  const std::string dots(200, '.');
  EXPECT_EQ(ErrorOf(kSmallest + ("# " + dots + brackets + "\nnotes = '" + dots + "[[[[[" + "'\n")).find("nested"),
            std::string::npos);
}

TEST(Config, ShowsTheFirstErrorsOfMany) {
  std::string text;
  for (int number = 0; number < 50'000; ++number) text += "lerning" + std::to_string(number) + " = 1\n";
  const std::string error = ErrorOf(text);
  EXPECT_THAT(error, HasSubstr("job.toml:1:1: there is no key \"lerning0\""));
  EXPECT_THAT(error, HasSubstr("job.toml:30:1: "));
  EXPECT_THAT(error, EndsWith("\njob.toml: and 49970 more"));
}

TEST(Config, ShowsNothingThatCouldSteerATerminal) {
  EXPECT_THAT(ErrorOf("\"a\\u001b[2J\" = 1\n"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(ErrorOf("name = \"a\\u001b[2J\"\n"), HasSubstr("must not hold a control character"));
  EXPECT_THAT(ErrorOf(kSmallest, {"data.kind=\x1b[2J"}), Not(HasSubstr("\x1b")));
}

struct BadSettingCase {
  std::vector<std::string> set;
  std::string expected;
};

TEST(Config, RefusesContradictions) {
  const std::vector<BadSettingCase> table = {
      {{"name=../up"}, "--set name=../up: name \"../up\" cannot be the name of a folder here"},
      {{"name=\"\""}, "name is missing"},
      {{"work_dirs=\"\""}, "work_dirs is empty"},
      {{"epochs=3", "steps=4"}, "steps = 4 and epochs = 3 contradict each other: give one of the two"},
      {{"steps=0"}, "steps is missing: say how long to train"},
      {{"data.size=500"}, "data.size = 500 is no multiple of 16, the side of a patch; use 496 or 512"},
      {{"data.kind=mmrs1m", "data.root=/data"},
       "data.task = \"segmentation\" needs masks, and data of kind mmrs1m has none: MMRS-1M holds captions"},
      {{"data.kind=folders", "data.root=/data"}, "data of kind folders has none: a folder is the category"},
      {{"data.kind=loveda", "data.root=/d", "data.task=classification"}, "needs one category an image"},
      {{"data.kind=mmseg", "data.root=/d"}, "data.classes is missing: masks hold numbers alone"},
      {{"data.kind=loveda"}, "data.root is missing: the folder of the loveda data"},
      {{"data.root=/d"}, "data.root is given, and synthetic data has no files"},
      {{"data.kind=loveda", "data.root=/d", "data.val=Train"}, "data.val = \"Train\" is the part that is trained on"},
      {{"data.sets=[\"EuroSAT\"]"}, "data.sets is for kind = \"mmrs1m\" alone"},
      {{"data.mask_dir=masks"}, "data.mask_dir is for kind = \"mmseg\" alone"},
      {{"data.reduce_zero_label=true"}, "data.reduce_zero_label is for masks in folders"},
      {{"data.classes=[\"a\"]"}, "data.classes has one class"},
      {{"data.classes=[\"a\", \"b\", \"a\"]"}, "data.classes names \"a\" twice"},
      {{"data.classes=[\"a\", \"b\"]", "data.ignore_label=1"}, "data.ignore_label = 1 is the number of class \"b\""},
      {{"data.kind=loveda", "data.root=/d", "data.bands=[1,2,3,4]"}, "data.mean has 3 numbers for 4 bands"},
      {{"data.bands=[]"}, "data.bands is empty"},
      {{"data.bands=[1,1,2]"}, "data.bands names a band twice"},
      {{"data.bands=[1,2,9]"}, "data.bands must be [1, 2, 3] for synthetic data"},
      {{"data.std=[1]"}, "data.std has 1 numbers for 3 bands"},
      {{"data.scale=[2, 1]"}, "data.scale = [2, 1] goes from large to small"},
      {{"model.backbone=dinov3-vitl"}, "model.backbone \"dinov3-vitl\" is not known: did you mean \"dinov3-vitl16\"?"},
      {{"model.freeze=13"}, "model.freeze = 13 is more than the 12 blocks of dinov3-vits16"},
      {{"data.task=classification", "model.head=up"}, "model.head = \"up\" is a head for segmentation"},
      {{"data.task=classification", "model.auxiliary_weight=0.4"}, "asks for an auxiliary head"},
      {{"model.weights_may_miss=[\"a\"]"}, "model.weights is empty, and there are rules"},
      {{"train.global_batch=16", "train.accumulation=2"}, "are two ways to say the same"},
      {{"train.global_batch=1"}, "train.global_batch = 1 is less than batch = 2"},
      {{"train.warmup=100"}, "train.warmup = 100 would last to the end of all 100 steps"},
      {{"train.warmup_lr=1"}, "train.warmup_lr = 1 is above lr = 0.0001"},
      {{"train.min_lr=1"}, "train.min_lr = 1 is above lr = 0.0001"},
      {{"train.oom=halve", "environment.backend=gloo"}, "cannot be done with backend = \"gloo\""},
      {{"validation.every=0", "validation.patience=2"}, "validation.patience = 2 counts validations"},
      {{"environment.backend=ncll"}, "environment.backend \"ncll\" is not known: did you mean \"nccl\"?"},
  };
  for (const BadSettingCase& row : table) EXPECT_THAT(ErrorOf(kSmallest, row.set), HasSubstr(row.expected));
}

TEST(Config, TakesSettingsFromTheCommandLine) {
  std::vector<std::string> notes;
  const auto config = ReadToml(kSmallest, "job.toml",
                               {"epochs=50", "train.lr = 1e-3", "data.classes=[\"a\", \"b\"]",
                                "train.precision=bfloat16", "name=other-name", "data={flip=0.25}", "train.warmup=3"},
                               &notes);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->epochs, 50);
  EXPECT_EQ(config->steps, 0);
  EXPECT_THAT(notes, ElementsAre("--set epochs replaces steps = 100 of job.toml"));
  EXPECT_EQ(config->train.lr, 1e-3);
  EXPECT_THAT(config->data.classes, ElementsAre("a", "b"));
  EXPECT_EQ(config->train.precision, Precision::kBfloat16);
  EXPECT_EQ(config->name, "other-name");
  EXPECT_EQ(config->data.flip, 0.25);
}

TEST(Config, RefusesSettingsThatAreNone) {
  EXPECT_EQ(ErrorOf(kSmallest, {"epochs"}), "--set epochs: write it as KEY=VALUE, such as --set train.lr=1e-3");
  EXPECT_EQ(ErrorOf(kSmallest, {"=3"}), "--set =3: write it as KEY=VALUE, such as --set train.lr=1e-3");
  EXPECT_EQ(ErrorOf(kSmallest, {"epoch=3"}), "--set epoch=3: there is no key \"epoch\"; did you mean \"epochs\"?");
  EXPECT_EQ(ErrorOf(kSmallest, {"train.lr=fast"}),
            "--set train.lr=fast: train.lr must be a number, not the text \"fast\"");
  EXPECT_EQ(ErrorOf(kSmallest, {"steps=4e4"}), "--set steps=4e4: steps must be a whole number, not 40000");
  EXPECT_THAT(ErrorOf(kSmallest, {"train.lr=1\nseed=3"}), HasSubstr("train.lr must be a number, not the text"));
}

TEST(Config, KnowsTheNamesOfKeysInOtherPrograms) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"max_iters", "steps"},
      {"train.num_workers", "data.workers"},
      {"amp", "train.precision"},
      {"data.crop_size", "data.size"},
      {"model.pretrained", "model.weights"},
      {"lr", "train.lr"},
      {"data.ignore_index", "data.ignore_label"},
      {"data.synthetic.trian", "data.synthetic.train"},
  };
  for (const auto& [written, meant] : table) EXPECT_EQ(NearestKey(written), meant) << written;
  EXPECT_EQ(NearestKey("qqqqqq"), std::nullopt);
}

TEST(Config, FillsInWhatTheKindOfTheDataDecides) {
  const auto loveda = ReadToml("name=\"a\"\nepochs=1\n[data]\nkind=\"loveda\"\nroot=\"/d\"\n", "job.toml", {});
  ASSERT_TRUE(loveda) << loveda.error().message;
  EXPECT_EQ(loveda->data.train, "Train");
  EXPECT_EQ(loveda->data.val, "Val");
  EXPECT_TRUE(loveda->data.reduce_zero_label);
  EXPECT_THAT(loveda->data.classes,
              ElementsAre("background", "building", "road", "water", "barren", "forest", "agricultural"));
  const auto given =
      ReadToml("name=\"a\"\nepochs=1\n[data]\nkind=\"loveda\"\nroot=\"/d\"\ntrain=\"Rest\"\n", "job.toml", {});
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->data.train, "Rest");
  const auto mmrs =
      ReadToml("name=\"a\"\nepochs=1\n[data]\nkind=\"mmrs1m\"\nroot=\"/d\"\ntask=\"classification\"\n", "job.toml", {});
  ASSERT_TRUE(mmrs) << mmrs.error().message;
  EXPECT_EQ(mmrs->data.train, "train");
  EXPECT_EQ(mmrs->data.val, "test");
}

// Every key has a value other than its default.
Config Unusual() {
  Config config;
  config.name = "unusual";
  config.work_dirs = "a \"quoted\" \\ place, [with] = signs and ünïcode";
  config.seed = 9007199254740993;  // not representable as a double
  config.epochs = 3;
  config.data.kind = model_spec::DataKind::kMmseg;
  config.data.root = "/data/# no comment";
  config.data.classes = {"a, b", "c]", "d"};
  config.data.bands = {4, 1};
  config.data.mean = {0.1, 1.0 / 3};
  config.data.std = {1e-6, 0.30000000000000004};
  config.data.scale = {0.1, std::nextafter(0.1, 1)};
  config.data.reduce_zero_label = true;
  config.model.weights = "/weights";
  config.model.weights_may_miss = {"layer.11.*"};
  config.model.norm = model_spec::Norm::kGroup;
  config.train.lr = 1.2345678901234567e-4;
  config.train.precision = Precision::kFloat16;
  config.train.betas = {0.85, 0.9999};
  return config;
}

TEST(ResolvedConfig, ComesBackToTheLastBit) {
  const Config config = Unusual();
  const std::string text = ToResolvedText(config);
  const auto again = FromResolvedText(text, "recipe.resolved");
  ASSERT_TRUE(again) << again.error().message << text;
  EXPECT_EQ(*again, config);
  EXPECT_EQ(ToResolvedText(*again), text);
  // It is also valid TOML.
  const auto as_toml = ReadToml(text, "recipe.resolved", {});
  ASSERT_TRUE(as_toml) << as_toml.error().message;
  EXPECT_EQ(*as_toml, config);
}

std::string ResolvedError(const std::string& text) {
  const auto config = FromResolvedText(text, "recipe.resolved");
  return config ? "accepted" : config.error().message;
}

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  return at == std::string::npos ? "" : text.replace(at, what.size(), by);
}

TEST(ResolvedConfig, RefusesWhatWasChangedOrCutShort) {
  const std::string good = ToResolvedText(Unusual());
  EXPECT_THAT(ResolvedError(good.substr(0, good.size() / 2)), HasSubstr("recipe.resolved"));
  EXPECT_THAT(ResolvedError(Replaced(good, "train.warmup = -1\n", "")),
              HasSubstr("recipe.resolved: train.warmup is missing: the file was cut short, or another version"));
  EXPECT_THAT(ResolvedError(good + "name = \"x\"\n"), HasSubstr("name stands here a second time"));
  EXPECT_THAT(ResolvedError(good + "newer.key = 1\n"), HasSubstr("there is no key \"newer.key\": another version"));
  EXPECT_THAT(ResolvedError(Replaced(good, "train.batch = 2", "train.batch = 2 3")), HasSubstr("cannot be read"));
  EXPECT_THAT(ResolvedError(Replaced(good, "train.batch = 2", "train.batch = nan")), HasSubstr("cannot be read"));
  EXPECT_THAT(ResolvedError(Replaced(good, "train.batch = 2", "train.batch = 0")),
              HasSubstr("must be within 1 … 65536"));
  EXPECT_THAT(ResolvedError(Replaced(good, "data.size = 512", "data.size = 500")), HasSubstr("is no multiple of 16"));
  EXPECT_THAT(ResolvedError("nonsense\n"), HasSubstr("recipe.resolved:1: this line has no ' = '"));
  EXPECT_THAT(ResolvedError(std::string(kMaxConfigBytes + 1, '#')), HasSubstr("too large"));
}

TEST(ResolvedConfig, SurvivesEveryCut) {
  const std::string good = ToResolvedText(Unusual());
  for (std::size_t length = 0; length < good.size(); ++length) {
    ASSERT_FALSE(FromResolvedText(std::string_view(good).substr(0, length), "f")) << length;
  }
}

TEST(Keys, CoverEveryMemberOfTheConfig) {
  // Setting every key of one config to the value of another makes the configs equal, so every member has a key.
  Config made;
  const Config unusual = Unusual();
  const auto copied = FromResolvedText(ToResolvedText(unusual), "f");
  ASSERT_TRUE(copied);
  EXPECT_EQ(*copied, unusual);
  std::set<std::string> names;
  std::set<const void*> members;
  for (const Key& key : Keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_STRNE(key.description, "");
    const Slot slot = key.slot(made);
    const void* at = std::visit(
        [](const auto& place) -> const void* {
          if constexpr (std::is_same_v<std::decay_t<decltype(place)>, Choice>) {
            return place.member;
          } else {
            return place;
          }
        },
        slot);
    EXPECT_TRUE(members.insert(at).second) << key.name << " has the place of another key";
  }
}

TEST(Changes, ReportWhatMayNotChangeWhenARunIsResumed) {
  Config before = Unusual();
  Config after = before;
  after.train.lr = 0.5;
  after.data.classes.push_back("e");
  after.model.ema = 0.99;
  const auto changes = ChangesBetween(before, after);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].key, "data.classes");
  EXPECT_TRUE(changes[0].fixed);
  EXPECT_EQ(changes[1].key, "model.ema");
  EXPECT_TRUE(changes[1].fixed);
  EXPECT_EQ(changes[2].key, "train.lr");
  EXPECT_FALSE(changes[2].fixed);
  EXPECT_EQ(changes[2].before, "0.00012345678901234567");
  EXPECT_EQ(changes[2].after, "0.5");
  before = after;
  after.model.ema = 0.999;  // EMA was enabled before
  EXPECT_FALSE(ChangesBetween(before, after).front().fixed);
  EXPECT_THAT(ChangesBetween(after, after), IsEmpty());
}

TEST(Backbones, HaveTheParametersOfThePublishedModels) {
  const std::vector<std::pair<const char*, std::int64_t>> table = {{"dinov3-vits16", 21'596'544},
                                                                   {"dinov3-vits16plus", 28'692'864},
                                                                   {"dinov3-vitb16", 85'660'416},
                                                                   {"dinov3-vitl16", 303'129'600}};
  for (const auto& [name, parameters] : table) {
    const model_spec::BackboneOptions* config = model_spec::FindBackbone(name);
    ASSERT_NE(config, nullptr) << name;
    EXPECT_EQ(model_spec::ParameterCount(*config), parameters) << name;
  }
  for (const std::string& name : model_spec::BackboneNames())
    EXPECT_EQ(model_spec::FindBackbone(name)->dim % model_spec::FindBackbone(name)->heads, 0);
  EXPECT_EQ(model_spec::FindBackbone("dinov3-vitx"), nullptr);
}

}  // namespace
}  // namespace fulldeck::config
