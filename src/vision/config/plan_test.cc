#include "config/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::config {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// The job of configs/loveda_8card.toml on a good server.
Config LargeJob() {
  Config config;
  config.name = "large";
  config.steps = 40'000;
  config.data.kind = model_spec::DataKind::kLoveda;
  config.data.root = "/d";
  config.data.classes = {"a", "b", "c", "d", "e", "f", "g"};
  config.model.backbone = "dinov3-vitl16";
  config.model.weights = "/w";
  config.model.head = model_spec::Head::kUp;
  config.model.auxiliary_weight = 0.4;
  config.train.precision = Precision::kBfloat16;
  config.train.lr_base_batch = 16;
  config.data.workers = 4;
  return config;
}

MachineFacts Server() {
  MachineFacts machine;
  machine.ranks = 8;
  machine.cards = 8;
  machine.card_kind = "gcu";
  machine.card_model = "S60";
  machine.card_memory = 48 * kGiB;
  machine.cores = 64;
  machine.host_memory = 256 * kGiB;
  machine.disk_free = 500 * kGiB;
  machine.training_samples = 2522;
  return machine;
}

Plan PlanOf(const Config& config, const MachineFacts& machine) {
  auto plan = MakePlan(config, machine);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan();
}

struct ShapeRow {
  std::int64_t batch, accumulation, global_batch, lr_base_batch, ranks;
  StepShape expected;
};

TEST(StepShape, FollowsFromTheBatchesAndTheRanks) {
  const std::vector<ShapeRow> table = {
      {2, 1, 0, 0, 8, {8, 16, 2, 2, 1, 1e-4}},   {2, 4, 0, 16, 8, {8, 64, 8, 2, 4, 4e-4}},
      {2, 1, 0, 16, 4, {4, 8, 2, 2, 1, 0.5e-4}}, {4, 1, 32, 0, 8, {8, 32, 4, 4, 1, 1e-4}},
      {4, 1, 32, 0, 1, {1, 32, 32, 4, 8, 1e-4}}, {4, 1, 32, 0, 16, {16, 32, 2, 2, 1, 1e-4}},
      {4, 1, 40, 0, 4, {4, 40, 10, 4, 3, 1e-4}},
  };
  for (const ShapeRow& row : table) {
    Config config;
    config.train.batch = row.batch;
    config.train.accumulation = row.accumulation;
    config.train.global_batch = row.global_batch;
    config.train.lr_base_batch = row.lr_base_batch;
    const auto shape = StepShapeFor(config, row.ranks);
    ASSERT_TRUE(shape) << shape.error().message;
    EXPECT_EQ(*shape, row.expected) << row.ranks << " ranks, batch " << row.batch;
  }
}

TEST(StepShape, RefusesABatchThatCannotBeShared) {
  Config config;
  config.train.global_batch = 32;
  const auto shape = StepShapeFor(config, 6);
  ASSERT_FALSE(shape);
  EXPECT_EQ(
      shape.error().message,
      "train.global_batch = 32 cannot be shared evenly by 6 ranks; use --devices 4 or 2 or 1, or a global batch of 36");
}

TEST(StepShape, CountsStepsInWholeBatches) {
  Config config;
  config.epochs = 3;
  EXPECT_EQ(StepsPerEpoch(100, 32), 3);
  EXPECT_EQ(TotalSteps(config, 100, 32), 9);
  EXPECT_EQ(StepsPerEpoch(31, 32), 0);
  config.epochs = 0;
  config.steps = 7;
  EXPECT_EQ(TotalSteps(config, 100, 32), 7);
  config.steps = 0;
  config.epochs = 1'000'000;
  EXPECT_GT(TotalSteps(config, ~std::uint64_t{0}, 1), 0);
}

TEST(MemoryEstimate, CountsWhatTrainingKeeps) {
  Config config = LargeJob();
  const MemoryEstimate whole = EstimateMemory(config, 2, true);
  // Backbone, up-head and auxiliary head.
  EXPECT_EQ(whole.parameters,
            303'129'600 + (1024 * 512 + 512 + 2 * (9 * 512 * 512 + 1024) + 513 * 7) + (9 * 1024 * 256 + 512 + 257 * 7));
  EXPECT_EQ(whole.trainable, whole.parameters - 1024) << "mask_token never learns";
  EXPECT_EQ(whole.weights, 4u * 310'740'238);
  EXPECT_EQ(whole.optimizer, 2 * 4u * 310'739'214);
  EXPECT_EQ(whole.checkpoint(), whole.weights + whole.optimizer);
  EXPECT_EQ(whole.ema, 0u);

  config.model.ema = 0.999;
  EXPECT_EQ(EstimateMemory(config, 2, true).ema, whole.weights);
  config.model.ema = 0;
  // Which settings each estimate depends on.
  EXPECT_EQ(EstimateMemory(config, 4, true).activations, 2 * whole.activations);
  EXPECT_GT(EstimateMemory(config, 2, false).activations, whole.activations);
  config.train.precision = Precision::kFloat32;
  EXPECT_GT(EstimateMemory(config, 2, true).activations, whole.activations * 3 / 2);
  config.train.precision = Precision::kBfloat16;
  config.data.size = 1024;
  EXPECT_NEAR(static_cast<double>(EstimateMemory(config, 2, true).activations),
              4.0 * static_cast<double>(whole.activations), 0.02 * 4.0 * static_cast<double>(whole.activations));
  config.data.size = 512;
  config.model.freeze = -1;
  const MemoryEstimate frozen = EstimateMemory(config, 2, true);
  EXPECT_EQ(frozen.trainable, whole.parameters - 303'129'600);
  EXPECT_LT(frozen.activations, whole.activations / 5);
  config.model.freeze = 12;
  EXPECT_LT(EstimateMemory(config, 2, true).trainable, whole.trainable);
}

TEST(Plan, OfTheLargeJobOnAServerHasNothingToComplainAbout) {
  const Config config = LargeJob();
  const Plan plan = PlanOf(config, Server());
  EXPECT_THAT(plan.errors, IsEmpty());
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_EQ(plan.shape.global_batch, 16);
  EXPECT_EQ(plan.shape.lr, 1e-4);
  EXPECT_EQ(plan.steps, 40'000);
  EXPECT_EQ(plan.steps_per_epoch, 157);
  EXPECT_EQ(plan.threads, 32);
  const std::string text = plan.ToText(config, Server());
  for (const char* line : {"plan of large\n", "ranks          8 on 8 gcu cards (S60)\n",
                           "model          dinov3-vitl16, 310,740,238 parameters, 310,739,214 of them learn\n",
                           "global batch   16 = 8 ranks × 1 part of 2\n", "learning rate  0.0001, backbone × 0.1\n",
                           "length         40,000 steps = 254.8 epochs of 157 (2,522 training images)\n",
                           "a card has 48 GiB\n", "loaders        32 threads (4 a rank) on 64 cores\n",
                           "disk           up to 17.4 GiB for checkpoints of 3.5 GiB; 500 GiB are free\n",
                           "folder         work_dirs/large\n", "estimated"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

struct ProblemCase {
  void (*spoil)(Config&, MachineFacts&);
  const char* error;    // nullptr: none
  const char* warning;  // nullptr: none
};

TEST(Plan, ReportsWhatWillNotWorkAndTheFix) {
  const std::vector<ProblemCase> table = {
      {[](Config&, MachineFacts& machine) { machine.card_memory = 4 * kGiB; },
       "of a card's memory, and a card has 4 GiB; use a smaller train.batch", nullptr},
      {[](Config&, MachineFacts& machine) { machine.card_memory = 14 * kGiB; }, nullptr,
       "and a card has 14 GiB; train.oom = \"halve\" may make it fit"},
      {[](Config& config, MachineFacts& machine) {
         machine.card_memory = 14 * kGiB;
         config.train.oom = OnOutOfMemory::kHalve;
       },
       nullptr, "and a card has 14 GiB; use a smaller train.batch"},
      {[](Config&, MachineFacts& machine) { machine.cards = 1; }, "8 ranks on one card needs about", nullptr},
      {[](Config&, MachineFacts& machine) { machine.host_memory = 6 * kGiB; }, nullptr,
       "of the host's memory are needed (3.5 GiB for the copy of a checkpoint), and 6 GiB are free"},
      {[](Config&, MachineFacts& machine) { machine.host_memory = 2 * kGiB; }, "and 2 GiB are free; use fewer ranks",
       nullptr},
      {[](Config&, MachineFacts& machine) {
         machine.simulated = true;
         machine.host_memory = 32 * kGiB;
       },
       "of the host's memory are needed", nullptr},
      {[](Config&, MachineFacts& machine) { machine.disk_free = kGiB; },
       "the checkpoints need up to 17.4 GiB of disk (5 of 3.5 GiB), and 1 GiB are free in work_dirs", nullptr},
      {[](Config& config, MachineFacts&) { config.checkpoint.keep_last = 0; }, nullptr, nullptr},
      {[](Config& config, MachineFacts& machine) {
         config.checkpoint.keep_last = 0;
         machine.disk_free = 100 * kGiB;
       },
       "(42 of 3.5 GiB)", nullptr},
      {[](Config&, MachineFacts& machine) { machine.cores = 16; }, nullptr,
       "32 threads would load data (4 a rank) on 16 cores; data.workers = 2 suits this machine"},
      {[](Config&, MachineFacts& machine) { machine.cores = 4; }, nullptr, "8 ranks share 4 cores"},
      {[](Config&, MachineFacts& machine) { machine.training_samples = 15; },
       "15 training images do not fill one global batch of 16", nullptr},
      {[](Config& config, MachineFacts&) {
         config.steps = 0;
         config.epochs = 1;
         config.train.warmup = 1000;
       },
       "train.warmup = 1000 would last to the end of all 157 steps", nullptr},
      {[](Config& config, MachineFacts&) {
         config.model.freeze = 3;
         config.model.weights.clear();
       },
       nullptr, "model.freeze = 3 freezes random weights"},
      {[](Config& config, MachineFacts&) {
         config.data.bands = {1, 2, 3, 4};
       },
       nullptr, "the published weights are for 3 bands, and data.bands has 4"},
      {[](Config& config, MachineFacts&) {
         config.steps = 900;
         config.train.warmup = 10;
       },
       nullptr, "validation.every = 1000 is more than the 900 steps"},
      {[](Config& config, MachineFacts&) { config.train.accumulation = 16; }, nullptr,
       "is scaled from 0.0001 to 0.0016"},
  };
  int number = 0;
  for (const ProblemCase& row : table) {
    Config config = LargeJob();
    config.checkpoint.every = 1000;
    MachineFacts machine = Server();
    machine.disk_free = 500 * kGiB;
    row.spoil(config, machine);
    const Plan plan = PlanOf(config, machine);
    ++number;
    if (row.error != nullptr) {
      EXPECT_THAT(plan.errors, Contains(HasSubstr(row.error))) << "row " << number;
    } else {
      EXPECT_THAT(plan.errors, IsEmpty()) << "row " << number;
    }
    if (row.warning != nullptr) {
      EXPECT_THAT(plan.warnings, Contains(HasSubstr(row.warning))) << "row " << number;
    }
  }
}

TEST(Plan, IsMadeOfWhatIsKnown) {
  Config config = LargeJob();
  config.steps = 0;
  config.epochs = 50;
  MachineFacts machine;
  machine.ranks = 2;
  const Plan plan = PlanOf(config, machine);
  EXPECT_EQ(plan.steps, std::nullopt);
  const std::string text = plan.ToText(config, machine);
  EXPECT_THAT(text, HasSubstr("ranks          2, on the processors: no card is used\n"));
  EXPECT_THAT(text, HasSubstr("length         50 epochs; the training images were not counted\n"));
  EXPECT_THAT(text, HasSubstr("a card has –\n"));
  EXPECT_THAT(text, HasSubstr("– are free"));
}

TEST(Plan, ShowsTheScaledLearningRateAndUnevenParts) {
  Config config = LargeJob();
  config.train.global_batch = 48;
  config.train.batch = 4;
  MachineFacts machine = Server();
  const std::string text = PlanOf(config, machine).ToText(config, machine);
  EXPECT_THAT(text, HasSubstr("global batch   48 = 8 ranks × 2 parts of 4 (the last is smaller)\n"));
  EXPECT_THAT(text, HasSubstr("learning rate  0.00030000000000000003 = 0.0001 × 48 / 16, backbone × 0.1\n"));
}

}  // namespace
}  // namespace fulldeck::config
