#include "dinov3/vision_model.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <set>
#include <string>

#include "dinov3/ema.h"
#include "dinov3/error_for_test.h"
#include "dinov3/losses.h"
#include "dinov3/session_for_test.h"
#include "fulldeck/adamw.h"
#include "fulldeck/grad_scaler.h"

namespace fulldeck::dinov3 {
namespace {

using testing::HasSubstr;

model_spec::BackboneOptions SmallBackbone() {
  model_spec::BackboneOptions config;
  config.dim = 32;
  config.layers = 3;
  config.heads = 2;
  config.mlp = 48;
  config.patch = 4;
  config.drop_path = 0.3;
  return config;
}
model_spec::ModelOptions UpHead() {
  model_spec::ModelOptions model;
  model.head = model_spec::Head::kUp;
  model.head_channels = 24;
  model.auxiliary_weight = 0.4;
  model.norm = model_spec::Norm::kGroup;
  return model;
}
VisionModel MakeModel(const model_spec::ModelOptions& model, model_spec::Task task = model_spec::Task::kSegmentation,
                      const Team& team = {}) {
  at::manual_seed(5);
  return VisionModel(SmallBackbone(), model, task, 7, team);
}
ForwardRandom RandomOf(std::vector<std::uint64_t> samples) {
  return {1, 0, 0, std::move(samples)};
}

TEST(VisionModel, ClassifiesPatchesAndImages) {
  const at::Tensor images = at::randn({2, 3, 16, 24});
  const ForwardRandom random = RandomOf({0, 1});
  VisionModel up = MakeModel(UpHead());
  const Prediction trained = up->forward(images, &random);
  EXPECT_EQ(trained.logits.sizes(), at::IntArrayRef({2, 7, 4, 6}));
  EXPECT_EQ(trained.auxiliary.sizes(), at::IntArrayRef({2, 7, 4, 6}));
  EXPECT_FALSE(at::equal(trained.logits, trained.auxiliary));
  up->eval();
  EXPECT_FALSE(up->forward(images).auxiliary.defined());
  const auto names = up->named_parameters();
  for (const char* name : {"backbone.layer.2.attention.k_proj.weight", "head.project.weight", "head.block2.conv.weight",
                           "head.block1.norm.bias", "head.classifier.bias", "auxiliary.block1.conv.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }

  VisionModel linear = MakeModel({});
  EXPECT_EQ(linear->forward(images, &random).logits.sizes(), at::IntArrayRef({2, 7, 4, 6}));
  EXPECT_FALSE(linear->forward(images, &random).auxiliary.defined());
  VisionModel whole = MakeModel({}, model_spec::Task::kClassification);
  EXPECT_EQ(whole->forward(images, &random).logits.sizes(), at::IntArrayRef({2, 7}));

  model_spec::ModelOptions unknown;
  unknown.backbone = "dinov3-vitx";
  EXPECT_THAT(
      ErrorOf([&] { VisionModel made(unknown, model_spec::Task::kSegmentation, 7, 3, Team()); }),
      HasSubstr("there is no backbone \"dinov3-vitx\". Set model.backbone to one of: dinov3-tiny, dinov3-vits16"));
  EXPECT_THAT(ErrorOf([&] { MakeModel(UpHead(), model_spec::Task::kClassification); }),
              HasSubstr("the auxiliary head learns from masks. Set it to 0."));
  EXPECT_THAT(ErrorOf([&] {
                VisionModel made(SmallBackbone(), model_spec::ModelOptions(), model_spec::Task::kSegmentation, 1,
                                 Team());
              }),
              HasSubstr("the model has 1 classes; there must be 2 at least."));
}

TEST(VisionModel, HasAsManyParametersAsItsOptionsSay) {
  model_spec::ModelOptions linear = UpHead();
  linear.head = model_spec::Head::kLinear;
  model_spec::ModelOptions plain = linear;
  plain.auxiliary_weight = 0;
  for (const model_spec::ModelOptions& options : {UpHead(), linear, plain}) {
    for (const model_spec::Task task : {model_spec::Task::kSegmentation, model_spec::Task::kClassification}) {
      if (task == model_spec::Task::kClassification && options.auxiliary_weight > 0) continue;  // refused
      std::int64_t count = 0;
      for (const at::Tensor& parameter : MakeModel(options, task)->parameters()) count += parameter.numel();
      EXPECT_EQ(count, model_spec::ParameterCount(SmallBackbone()) +
                           model_spec::HeadParameterCount(options, task, 7, SmallBackbone().dim));
    }
  }
}

TEST(VisionModel, UpsamplesAlikeWithDeterministicAlgorithms) {
  const at::Tensor logits = at::randn({2, 3, 4, 5}).requires_grad_();
  const at::Tensor usual = Prediction::Upsample(logits, 16, 33);
  const at::Tensor weights = at::randn_like(usual);
  (usual * weights).sum().backward();
  const at::Tensor gradient = logits.grad().clone();
  logits.mutable_grad().zero_();
  at::globalContext().setDeterministicAlgorithms(true, false);
  const at::Tensor other = Prediction::Upsample(logits, 16, 33);
  (other * weights).sum().backward();
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_TRUE(at::allclose(usual, other, 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(gradient, logits.grad(), 1e-4, 1e-4));
  EXPECT_EQ(Prediction::Upsample(logits.to(at::kBFloat16), 8, 8).scalar_type(), at::kFloat);
}

TEST(Losses, AreTheMeanOverLabeledPixelsOfEachHead) {
  at::manual_seed(1);
  Prediction prediction{at::randn({2, 7, 4, 4}), at::randn({2, 7, 4, 4})};
  at::Tensor labels = at::randint(0, 7, {2, 16, 16}, at::kLong);
  labels[0].slice(0, 0, 11).fill_(255);
  const Losses losses = LossesOf(prediction, labels, UpHead(), 255, 0.1);
  const auto expected = [&](const at::Tensor& logits) {
    return at::cross_entropy_loss(at::upsample_bilinear2d(logits, {16, 16}, false), labels, {}, at::Reduction::Mean,
                                  255, 0.0);
  };
  const Losses plain = LossesOf(prediction, labels, UpHead(), 255, 0);
  EXPECT_NEAR(plain.main.item<double>(), expected(prediction.logits).item<double>(), 1e-5);
  EXPECT_NEAR(plain.auxiliary.item<double>(), expected(prediction.auxiliary).item<double>(), 1e-5);
  EXPECT_NEAR(plain.total.item<double>(), (plain.main + 0.4 * plain.auxiliary).item<double>(), 1e-6);
  EXPECT_NE(losses.main.item<double>(), plain.main.item<double>());
  at::globalContext().setDeterministicAlgorithms(true, false);
  EXPECT_NEAR(LossesOf(prediction, labels, UpHead(), 255, 0.1).total.item<double>(), losses.total.item<double>(), 1e-5);
  at::globalContext().setDeterministicAlgorithms(false, false);

  // Losses of micro-batches add up, however unevenly the labels are distributed.
  const at::Tensor labeled = LabeledPerRank(Team(), labels, 255);
  EXPECT_EQ(labeled.item<double>(), 5 * 16 + 16 * 16);
  double sum = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    const Prediction part{prediction.logits.slice(0, i, i + 1), prediction.auxiliary.slice(0, i, i + 1)};
    sum += LossesOf(part, labels.slice(0, i, i + 1), UpHead(), 255, 0, labeled).total.item<double>();
  }
  EXPECT_NEAR(sum, plain.total.item<double>(), 1e-5);

  // Without labels the loss and the gradients are 0, not NaN.
  prediction.logits.requires_grad_();
  const Losses none = LossesOf(prediction, at::full_like(labels, 255), UpHead(), 255, 0.1);
  none.total.backward();
  EXPECT_EQ(none.total.item<double>(), 0);
  EXPECT_EQ(prediction.logits.grad().abs().max().item<double>(), 0);

  const Prediction of_images{at::randn({3, 7}), {}};
  const at::Tensor classes = at::tensor({1, 6, 255}, at::kLong);
  EXPECT_NEAR(LossesOf(of_images, classes, {}, 255, 0).total.item<double>(),
              at::cross_entropy_loss(of_images.logits.slice(0, 0, 2), classes.slice(0, 0, 2)).item<double>(), 1e-5);
  EXPECT_THAT(ErrorOf([&] { LossesOf(of_images, labels, {}, 255, 0); }),
              HasSubstr("labels [2, 16, 16] of type Long do not fit predictions [3, 7]: they must be int64, [N]"));
  EXPECT_THAT(ErrorOf([&] { LossesOf(prediction, labels.to(at::kByte), {}, 255, 0); }),
              HasSubstr("[N, height, width]"));
}

TEST(ParamGroups, LeavesNormsBiasesAndTokensWithoutDecayAndFrozenOnesOut) {
  model_spec::ModelOptions model_config = UpHead();
  model_config.freeze = 1;
  VisionModel model = MakeModel(model_config);
  std::set<void*> seen;
  const auto named = model->named_parameters();
  const auto groups = ParamGroups(*model, 0.1, false);
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].name, "backbone");
  EXPECT_EQ(groups[1].name, "backbone without decay");
  EXPECT_EQ(groups[2].name, "heads");
  EXPECT_EQ(groups[3].name, "heads without decay");
  for (const ParamGroup& group : groups) {
    EXPECT_EQ(group.lr_factor, group.name.compare(0, 8, "backbone") == 0 ? 0.1 : 1);
    for (const at::Tensor& parameter : group.parameters) {
      EXPECT_TRUE(seen.insert(parameter.unsafeGetTensorImpl()).second);
      EXPECT_EQ(group.decayed, parameter.dim() > 1);
    }
  }
  for (const auto& item : named)
    EXPECT_EQ(seen.count(item.value().unsafeGetTensorImpl()), item.value().requires_grad() ? 1U : 0U) << item.key();
  EXPECT_FALSE(named["backbone.embeddings.cls_token"].requires_grad());

  model_config.freeze = 0;
  VisionModel trainable = MakeModel(model_config);
  const auto decayed = ParamGroups(*trainable, 0.1, false)[0].parameters;
  for (const at::Tensor& parameter : decayed)
    EXPECT_NE(parameter.unsafeGetTensorImpl(),
              trainable->named_parameters()["backbone.embeddings.cls_token"].unsafeGetTensorImpl());
  EXPECT_EQ(ParamGroups(*trainable, 0.1, true).size(), 2U);
  model_config.freeze = -1;
  VisionModel heads_only = MakeModel(model_config);
  EXPECT_EQ(ParamGroups(*heads_only, 0.1, false).front().name, "heads");
}

TEST(Ema, FollowsSlowlySwapsAndIsSaved) {
  model_spec::ModelOptions model_config = UpHead();
  model_config.norm = model_spec::Norm::kSyncBatch;
  VisionModel model = MakeModel(model_config);
  Ema ema(*model, 0.75);
  const at::NoGradGuard no_grad;
  const auto parameter = model->named_parameters()["head.classifier.bias"];
  const auto running = model->named_buffers()["head.block1.norm.running_mean"];
  double expected = 0;
  for (int step = 0; step < 40; ++step) {
    parameter.fill_(step);
    running.fill_(step);
    ema.Update();
    const double decay = std::min(0.75, (1.0 + step) / (10.0 + step));
    expected = decay * expected + (1 - decay) * step;
  }
  const at::Tensor held = parameter;
  ema.Swap();
  EXPECT_NEAR(held[0].item<double>(), expected, 1e-3);
  EXPECT_EQ(running[0].item<double>(), 39);
  EXPECT_THAT(ErrorOf([&] { ema.Update(); }), HasSubstr("Swap() them back first"));
  const State::NamedTensors while_swapped = ema.Save();
  const double saved = while_swapped.at("head.classifier.bias")[0].item<double>();
  ema.Swap();
  EXPECT_NEAR(saved, expected, 1e-3);
  EXPECT_EQ(held[0].item<double>(), 39);

  State::NamedTensors copies;
  for (const auto& [name, tensor] : ema.Save()) copies[name] = tensor.clone();
  VisionModel other = MakeModel(model_config);
  Ema resumed(*other, 0.75);
  resumed.Load(copies);
  for (Ema* one : {&ema, &resumed}) one->Swap();
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(at::equal(item.value(), other->named_parameters()[item.key()])) << item.key();
  copies.erase("head.classifier.bias");
  copies["head.classifier.weight"] = at::zeros({3});
  const std::string error = ErrorOf([&] { resumed.Load(copies); });
  EXPECT_THAT(error, HasSubstr("missing: head.classifier.bias"));
  EXPECT_THAT(error, HasSubstr("of another shape: head.classifier.weight, [3] and not [7, 24, 1, 1]"));
  EXPECT_THAT(ErrorOf([&] { Ema bad(*model, 1); }), HasSubstr("a decay between 0 and 1"));
}

// One step's data of all ranks: few labels in the first half, many in the second.
struct Batch {
  at::Tensor images = at::randn({4, 3, 16, 16});
  at::Tensor labels = at::randint(0, 7, {4, 16, 16}, at::kLong);
  std::vector<std::uint64_t> samples = {4, 9, 2, 7};

  Batch() { labels.slice(0, 0, 2).slice(1, 0, 15).fill_(255); }
};

AdamW OptimizerOf(VisionModelImpl& model) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const ParamGroup& group : ParamGroups(model, 0.5, false)) {
    groups.emplace_back(group.parameters,
                        std::make_unique<torch::optim::AdamWOptions>(
                            torch::optim::AdamWOptions(1e-2 * group.lr_factor).weight_decay(group.decayed ? 0.05 : 0)));
  }
  return AdamW(groups, torch::optim::AdamWOptions(1e-2));
}

// Two ranks on cards (or the CPU) train the same as a single rank with the whole batch: with frozen layers, drop path,
// synchronized norms and unevenly distributed labels.
void MatchSingleRankTraining(const Session& session, Session& mutable_session) {
  model_spec::ModelOptions model_config = UpHead();
  model_config.norm = model_spec::Norm::kSyncBatch;
  model_config.freeze = 1;
  VisionModel single = MakeModel(model_config);
  AdamW single_optimizer = OptimizerOf(*single);
  VisionModel model = MakeModel(model_config, model_spec::Task::kSegmentation, session.team());
  model->to(session.device());
  DataParallel<VisionModelImpl> parallel(model, mutable_session);
  AdamW optimizer = OptimizerOf(*model);
  for (std::uint64_t step = 0; step < 3; ++step) {
    at::manual_seed(100 + step);
    const Batch batch;
    const ForwardRandom all{1, 0, step, batch.samples};
    single_optimizer.zero_grad();
    const Losses expected = LossesOf(single->forward(batch.images, &all), batch.labels, model_config, 255, 0.1);
    expected.total.backward();
    single_optimizer.step();

    if (step == 1) model->UseTeam(session.team());  // as after a regroup: the layers' tensors do not change
    const std::int64_t begin = session.rank() * 2;
    const at::Tensor images = batch.images.slice(0, begin, begin + 2).to(session.device());
    const at::Tensor labels = batch.labels.slice(0, begin, begin + 2).to(session.device());
    const ForwardRandom mine{1, 0, step, {batch.samples.begin() + begin, batch.samples.begin() + begin + 2}};
    optimizer.zero_grad();
    const at::Tensor labeled = LabeledPerRank(session.team(), labels, 255);
    const Losses losses = LossesOf(parallel.Forward(images, &mine), labels, model_config, 255, 0.1, labeled);
    losses.total.backward();
    parallel.Step(optimizer);
    RankMust(std::abs(MeanOverRanks(session.team(), losses.main) - expected.main.item<double>()) < 1e-4, "main loss");
    RankMust(std::abs(MeanOverRanks(session.team(), losses.auxiliary) - expected.auxiliary.item<double>()) < 1e-4,
             "auxiliary loss");
  }
  const auto named = single->named_parameters();
  for (const auto& item : model->named_parameters()) {
    const at::Tensor distance = (item.value().cpu() - named[item.key()]).abs();
    // AdamW amplifies tiny differences of a gradient near 0, so the test bounds the mean, not the maximum.
    RankMust(distance.mean().item<double>() < 2e-4, item.key() + ": " + std::to_string(distance.mean().item<double>()));
  }
  const at::Tensor running = model->named_buffers()["head.block1.norm.running_var"].cpu();
  RankMust(at::allclose(running, single->named_buffers()["head.block1.norm.running_var"], 1e-3, 1e-4), "running_var");
}

TEST(VisionModelRanks, OnTheHostMatchSingleRankTraining) {
  RunSessions(2, "", [](Session& session) { MatchSingleRankTraining(session, session); });
}

TEST(VisionModelRanks, OnSimulatedCardsMatchSingleRankTrainingAndRunInBfloat16) {
  RunSessions(2, "gcu:2", [](Session& session) {
    RankMust(session.device().is_privateuseone(), "no card");
    RankMust(AdamW::IsFusedOn(session.device().type()), "AdamW in one kernel");
    MatchSingleRankTraining(session, session);

    VisionModel model = MakeModel(UpHead(), model_spec::Task::kSegmentation, session.team());
    model->to(session.device());
    const Batch batch;
    const ForwardRandom random{1, 0, 0, batch.samples};
    const auto loss = [&](bool narrow) {
      const Autocast cast(session.device().type(), at::kBFloat16, narrow);
      const Prediction prediction = model->forward(batch.images.to(session.device()), &random);
      RankMust(prediction.logits.scalar_type() == (narrow ? at::kBFloat16 : at::kFloat), "type of the logits");
      return LossesOf(prediction, batch.labels.to(session.device()), UpHead(), 255, 0).total;
    };
    const at::Tensor narrow = loss(true);
    narrow.backward();
    RankMust(std::abs(narrow.item<double>() - loss(false).item<double>()) < 0.05, "loss in bfloat16");
    Ema ema(*model, 0.9);
    ema.Update();
    ema.Swap();
  });
}

}  // namespace
}  // namespace fulldeck::dinov3
