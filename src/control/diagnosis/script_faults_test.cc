#include "diagnosis/script_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "diagnosis/known_failures/log_admissions.h"

namespace fulldeck::diagnosis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Ranks = std::vector<RankObservations>;

Ranks Two(int check, const wire::Observation& first, const wire::Observation& second) {
  Ranks ranks(2);
  for (int i = 0; i < 2; ++i) ranks[static_cast<std::size_t>(i)].rank = i;
  ranks[0].checks[static_cast<std::size_t>(check)] = first;
  ranks[1].checks[static_cast<std::size_t>(check)] = second;
  return ranks;
}

Ranks Two(int check, const wire::Observation& both) {
  return Two(check, both, both);
}

std::vector<std::string> Codes(const std::vector<events::Event>& found) {
  std::vector<std::string> codes;
  for (const events::Event& event : found) {
    codes.push_back(event.severity == events::Severity::kWarning ? event.fields.Text("code")
                                                                 : "note " + event.fields.Text("code"));
  }
  return codes;
}

std::vector<std::string> Update(const Ranks& ranks, bool ended_well = false, int world_size = 2, bool shared = false) {
  return Codes(ScriptFaults(world_size, shared).Update(ranks, ended_well));
}

TEST(ScriptFaults, NamesTrainingsThatNeverFormedAGroup) {
  const int group = FULLDECK_BOARD_CHECK_GROUP;
  EXPECT_THAT(Update(Two(group, {.state = 1, .count = 50})), ElementsAre("A7"));
  EXPECT_THAT(Update(Two(group, {.state = 1, .count = 49})), IsEmpty());
  EXPECT_THAT(Update(Two(group, {.state = 1, .count = 3}), true), ElementsAre("A7"));
  EXPECT_THAT(Update(Two(group, {.state = 1, .count = 50}, {.state = 2, .count = 50})), IsEmpty());
  EXPECT_THAT(Update(Two(group, {.state = 1, .count = 50}, {})), IsEmpty()) << "one rank alone is J5";
  EXPECT_THAT(Update(Two(group, {.state = 1, .count = 50}), false, 1), IsEmpty());
  Ranks grouped = Two(group, {.state = 1, .count = 50});
  grouped[1].in_group = true;
  EXPECT_THAT(Update(grouped), IsEmpty()) << "the board shows a group of another library";
}

TEST(ScriptFaults, WarnsOfManyTensorsWithoutAGradientAndNotesFew) {
  const int gradients = FULLDECK_BOARD_CHECK_GRADIENTS;
  EXPECT_THAT(Update(Two(gradients, {.value = 2, .count = 6, .step = 20, .text = "head.weight"})), ElementsAre("F7"));
  EXPECT_THAT(Update(Two(gradients, {.value = 2, .count = 199, .step = 20, .text = "pooler"})), ElementsAre("note F7"));
  EXPECT_THAT(Update(Two(gradients, {.value = 0, .count = 6, .step = 20})), IsEmpty());
  EXPECT_THAT(Update(Two(gradients, {.state = 1, .value = 6, .count = 6, .step = 20, .text = "policy.weight"}), true),
              ElementsAre("note F7"))
      << "zeros in few steps";
}

TEST(ScriptFaults, WarnsOfOneLabelOnlyWhenAllRanksHaveIt) {
  const int labels = FULLDECK_BOARD_CHECK_LABELS;
  EXPECT_THAT(Update(Two(labels, {.state = 1, .value = 0, .count = 50})), ElementsAre("F7"));
  EXPECT_THAT(Update(Two(labels, {.state = 1, .value = 0, .count = 10}, {.state = 1, .value = 0, .count = 10}), true),
              ElementsAre("F7"));
  EXPECT_THAT(Update(Two(labels, {.state = 1, .value = 0, .count = 10})), IsEmpty());
  EXPECT_THAT(Update(Two(labels, {.state = 1, .value = 0, .count = 50}, {.state = 1, .value = 1, .count = 50})),
              IsEmpty());
  EXPECT_THAT(Update(Two(labels, {.state = 1, .value = 0, .count = 50}, {.state = 2})), IsEmpty());
}

TEST(ScriptFaults, GradientsAndLabelsAreTwoWarningsOfOneCode) {
  Ranks ranks = Two(FULLDECK_BOARD_CHECK_LABELS, {.state = 1, .value = 0, .count = 50});
  for (RankObservations& rank : ranks) {
    rank.checks[FULLDECK_BOARD_CHECK_GRADIENTS] = wire::Observation{.value = 2, .count = 6, .step = 20, .text = "x"};
  }
  ScriptFaults faults(2, false);
  EXPECT_THAT(Codes(faults.Update(ranks, false)), ElementsAre("F7", "F7"));
  EXPECT_THAT(faults.Update(ranks, true), IsEmpty()) << "each once an attempt";
}

TEST(ScriptFaults, JudgesValidationAndChildrenWhenTheRunEndedWell) {
  const Ranks validation = Two(FULLDECK_BOARD_CHECK_VALIDATION, {.state = 1, .value = 64, .count = 64});
  EXPECT_THAT(Update(validation), IsEmpty());
  EXPECT_THAT(Update(validation, true), ElementsAre("F6"));
  EXPECT_THAT(Update(Two(FULLDECK_BOARD_CHECK_VALIDATION, {.state = 1, .value = 64, .count = 64},
                         {.state = 2, .value = 0, .count = 64}),
                     true),
              IsEmpty());
  const int read = FULLDECK_BOARD_CHECK_VALIDATION;
  EXPECT_THAT(Update(Two(read, {.state = 3, .value = 64, .count = 64}), true), ElementsAre("note F6"))
      << "it may be no validation";
  EXPECT_THAT(Update(Two(read, {.state = 1, .value = 64, .count = 64}, {.state = 3, .value = 64, .count = 64}), true),
              ElementsAre("F6"));
  EXPECT_THAT(Update(Two(read, {.state = 3, .value = 64, .count = 64}, {.state = 2, .count = 64}), true), IsEmpty());
  const Ranks children = Two(FULLDECK_BOARD_CHECK_CHILDREN, {.value = 1, .count = 1, .text = "python train.py"});
  EXPECT_THAT(Update(children), IsEmpty());
  EXPECT_THAT(Update(children, true), ElementsAre("C6"));
}

TEST(ScriptFaults, NamesParametersOnTheCpuOfARankWithACardAndTwoRanksOnOneCard) {
  Ranks ranks = Two(FULLDECK_BOARD_CHECK_DEVICE, {.state = 1});
  EXPECT_THAT(Update(ranks), IsEmpty()) << "a run without cards";
  ranks[1].card = "nvidia 1";
  EXPECT_THAT(Update(ranks), ElementsAre("B6"));
  const Ranks shared = Two(FULLDECK_BOARD_CHECK_DEVICE, {.state = 2, .text = "cuda:0"});
  EXPECT_THAT(Update(shared), ElementsAre("B8"));
  EXPECT_THAT(Update(shared, false, 2, true), IsEmpty()) << "--share-cards";
  EXPECT_THAT(Update(Two(FULLDECK_BOARD_CHECK_DEVICE, {.state = 2, .text = "cuda:0"}, {.state = 2, .text = "cuda:1"})),
              IsEmpty());
  EXPECT_THAT(Update(Two(FULLDECK_BOARD_CHECK_VISIBILITY, {.state = 1, .text = "X=1"})), ElementsAre("B9"));
}

TEST(ScriptFaults, NamesTheFirstStepThatWasNotFinite) {
  const auto found = ScriptFaults(2, false).Update(
      Two(FULLDECK_BOARD_CHECK_FINITE, {.state = 1, .step = 32}, {.state = 1, .step = 31}), false);
  ASSERT_THAT(Codes(found), ElementsAre("J6"));
  EXPECT_THAT(found[0].fields.Text("evidence"), HasSubstr("gradients at step 31"));
  Ranks ranks(1);
  ranks[0].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Update(ranks, false, 1), ElementsAre("J6"));
  ranks[0].loss = 0.5;
  EXPECT_THAT(Update(ranks, false, 1), IsEmpty());
}

TEST(ScriptFaults, ReportsWhatWasNotFinite) {
  for (const auto& [state, what] : {std::pair<std::uint32_t, const char*>{2, "loss"}, {3, "parameters"}}) {
    const auto found =
        ScriptFaults(2, false).Update(Two(FULLDECK_BOARD_CHECK_FINITE, {.state = state, .step = 7}), false);
    ASSERT_THAT(Codes(found), ElementsAre("J6"));
    EXPECT_THAT(found[0].fields.Text("evidence"), HasSubstr(what));
  }
}

TEST(ScriptFaults, GradientsThatMayStillComeAreANote) {
  const int gradients = FULLDECK_BOARD_CHECK_GRADIENTS;
  const Ranks early = Two(gradients, {.state = 2, .value = 2, .count = 6, .step = 20, .text = "x"});
  ScriptFaults faults(2, false);
  const auto found = faults.Update(early, false);
  ASSERT_THAT(Codes(found), ElementsAre("note F7"));
  EXPECT_THAT(found[0].fields.Text("evidence"), HasSubstr("had no gradient"));
  EXPECT_THAT(Codes(faults.Update(Two(gradients, {.value = 2, .count = 6, .step = 38, .text = "x"}), false)),
              ElementsAre("F7"));
}

TEST(ScriptFaults, EqualRandomStatesAreANote) {
  const int random = FULLDECK_BOARD_CHECK_RANDOM;
  EXPECT_THAT(Update(Two(random, {.state = 1, .value = 7})), ElementsAre("note G5"));
  EXPECT_THAT(Update(Two(random, {.state = 2, .value = 7})), IsEmpty()) << "the framework seeds ranks alike";
  EXPECT_THAT(Update(Two(random, {.state = 1, .value = 7}, {.state = 1, .value = 8})), IsEmpty());
}

TEST(ScriptFaults, NamesAHandWrittenModuleWithAVendorsName) {
  const auto found =
      ScriptFaults(2, false).Update(Two(FULLDECK_BOARD_CHECK_MODULES, {.count = 1, .text = "project/eccl.py"}), false);
  ASSERT_THAT(Codes(found), ElementsAre("D9"));
  EXPECT_THAT(found[0].fields.Text("evidence"), HasSubstr("project/eccl.py"));
}

TEST(ScriptFaults, WeightsThatFitNowhereAndChecksThatFailedAreReportedOnce) {
  EXPECT_THAT(Update(Two(FULLDECK_BOARD_CHECK_WEIGHTS, {.value = 0, .count = 8, .text = "Model"})), ElementsAre("G2"));
  ScriptFaults faults(2, false);
  const Ranks disabled = Two(FULLDECK_BOARD_CHECK_DISABLED, {.count = 2, .text = "labels: ValueError: x"});
  const auto found = faults.Update(disabled, false);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].id, "check-disabled");
  EXPECT_EQ(found[0].severity, events::Severity::kInfo);
  EXPECT_THAT(faults.Update(disabled, true), IsEmpty());
}

TEST(ChecksOff, AreCodesOfSilentErrorsAndNothingElse) {
  const auto off = ChecksOff(" F6,C6, ,J1");
  ASSERT_TRUE(off.ok());
  EXPECT_THAT(*off, ElementsAre("C6", "F6", "J1"));
  EXPECT_THAT(*ChecksOff(""), IsEmpty());
  for (const char* text : {"F66", "f6", "F6;C6", "I1", "all"}) {
    const auto refused = ChecksOff(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(refused.error().message, HasSubstr(std::string("'") + text + "'")) << text;
  }
}

TEST(LogAdmissions, NamesEachCodeOnceWithItsLine) {
  LogAdmissions admissions(2, false);
  admissions.Take(1, "val split Not Found, Using training set for validation");
  admissions.Take(0, "mask a.png not found, using zeros");
  admissions.Take(1, "mask b.png not found, using zeros");
  const auto found = admissions.Found();
  ASSERT_THAT(Codes(found), ElementsAre("F2", "F6"));
  EXPECT_THAT(found[0].fields.Ints("ranks"), ElementsAre(0, 1));
  EXPECT_EQ(found[0].fields.Text("evidence"), "mask a.png not found, using zeros");
  admissions.Take(0, "mask c.png not found, using zeros");
  EXPECT_THAT(admissions.Found(), IsEmpty());
}

TEST(LogAdmissions, KnowsWhatIsNoAdmission) {
  LogAdmissions alone(1, false);
  for (const char* line :
       {"Not using distributed mode", "CUDA not available, using CPU", "fulldeck: WARNING: F2: using placeholder data",
        "=> Dummy data is used!", "using synthetic data", "epoch 1: 37 labels, 0 missing", "loss 0.1"}) {
    alone.Take(0, line);
    EXPECT_THAT(alone.Found(), IsEmpty()) << line;
  }
  LogAdmissions sound(2, true);
  for (const char* line : {"预训练权重不存在，使用随机初始化",
                           "未找到预训练模型，使用随机初始化的权重",
                           "checkpoint 不存在, 使用随机种子 42 从头训练",
                           "使用随机掩码进行自监督预训练，mask_ratio=0.75",
                           "预训练权重不存在，使用随机掩码进行自监督预训练",
                           "缓存不存在，使用随机数据增强",
                           "划分文件不存在，使用随机划分",
                           "预训练偏置不存在，使用全零初始化",
                           "不使用假数据，全部样本来自磁盘",
                           "禁止使用占位数据",
                           "仅使用单卡进行验证，其余 rank 等待",
                           "验证时仅使用单卡",
                           "未使用分布式优化器",
                           "禁止使用训练集进行验证：已检查",
                           "是否使用训练集进行验证: False",
                           "lr schedule: going back to random data order",
                           "LMDB cache not found, using random data order",
                           "Not falling back to dummy data: stopping",
                           "real images found; not using placeholder data",
                           "class weights not found, using random masks ratio 0.15",
                           "attention mask missing, using zeros",
                           "Using training data for validation split: 10 %"}) {
    sound.Take(0, line);
    EXPECT_THAT(sound.Found(), IsEmpty()) << line;
  }
  LogAdmissions several(2, true);
  several.Take(0, "Not using distributed mode");
  several.Take(0, "CUDA not available, using CPU");
  EXPECT_THAT(Codes(several.Found()), ElementsAre("B6", "C1"));
}

TEST(LogAdmissions, KnowsAnAdmissionByTheDataThatIsReplaced) {
  for (const auto& [code, line] : std::vector<std::pair<std::string, const char*>>{
           {"F2", "数据目录不存在，使用随机数据代替"},
           {"F2", "掩码文件不存在，使用随机掩码"},
           {"F2", "未找到标签 a.png，使用全零标签"},
           {"F2", "下载失败，使用假数据继续训练"},
           {"F2", "数据集初始化失败，使用假数据"},
           {"F2", "Connection refused, using synthetic data instead"},
           {"F2", "mask a.png not found, using random masks"},
           {"F2", "images are missing: falling back to placeholder images"},
           {"F6", "未划分验证集，使用训练集作为验证集"},
           {"F6", "val folder is empty, using training data for validation"},
           {"C1", "分布式初始化失败，仅使用单卡"},
           {"C1", "仅使用单卡训练，模型保存到 out"}}) {
    LogAdmissions admissions(2, false);
    admissions.Take(0, line);
    EXPECT_THAT(Codes(admissions.Found()), ElementsAre(code)) << line;
  }
}

TEST(LogAdmissions, ReadsABoundedNumberOfLinesBetweenTwoCalls) {
  LogAdmissions admissions(2, false);
  for (int i = 0; i < 100'000; ++i) admissions.Take(0, "a flood");
  admissions.Take(0, "使用占位数据");
  EXPECT_THAT(admissions.Found(), IsEmpty());
  admissions.Take(0, "使用占位数据");
  EXPECT_THAT(Codes(admissions.Found()), ElementsAre("F2"));
}

}  // namespace
}  // namespace fulldeck::diagnosis
