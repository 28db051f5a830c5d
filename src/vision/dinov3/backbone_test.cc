#include "dinov3/backbone.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <tuple>

#include "dinov3/error_for_test.h"
#include "dinov3/rope.h"

namespace fulldeck::dinov3 {
namespace {

using testing::HasSubstr;

model_spec::BackboneOptions Small() {
  model_spec::BackboneOptions config;
  config.dim = 32;
  config.layers = 4;
  config.heads = 2;
  config.mlp = 48;
  config.patch = 4;
  return config;
}

TEST(Rope, HasTheNumbersOfThePublishedModels) {
  RotaryTables tables(64, 100, 5);
  const RotaryTable table = tables.Get(14, 14, c10::kCPU);
  ASSERT_EQ(table.cos.sizes(), at::IntArrayRef({5 + 196, 1, 64}));
  const double cos[] = {.9009689, -.3308616, -.9903101, -.7767847};
  const double sin[] = {.4338837, .9436793, .1388736, -.6297663};
  for (std::int64_t i = 0; i < 4; ++i) {
    for (const std::int64_t repeat : {0, 16, 32, 48}) {  // patch 0 has the same y and x
      EXPECT_NEAR(table.cos[5][0][i + repeat].item<double>(), cos[i], 2e-6) << i + repeat;
      EXPECT_NEAR(table.signed_sin[5][0][i + repeat].item<double>(), repeat < 32 ? -sin[i] : sin[i], 2e-6)
          << i + repeat;
    }
  }
  // The y of the first and of the last patch are opposite, and so are the x.
  EXPECT_TRUE(at::allclose(table.signed_sin[5], -table.signed_sin[200], 1e-4, 1e-5));
  // The prefix tokens are unchanged.
  const at::Tensor tokens = at::randn({2, 201, 3, 64});
  const at::Tensor turned = ApplyRotary(tokens, table);
  EXPECT_TRUE(at::equal(turned.slice(1, 0, 5), tokens.slice(1, 0, 5)));
  EXPECT_FALSE(at::allclose(turned.slice(1, 5), tokens.slice(1, 5)));
  EXPECT_TRUE(at::allclose(turned.norm(2, -1), tokens.norm(2, -1), 1e-4, 1e-4));
  // Computed in float32, whatever the input type.
  const at::Tensor narrow = tokens.to(at::kBFloat16);
  EXPECT_TRUE(at::equal(ApplyRotary(narrow, table), ApplyRotary(narrow.to(at::kFloat), table).to(at::kBFloat16)));
}

TEST(Backbone, HasAsManyParametersAsThePublishedModels) {
  const std::tuple<const char*, std::int64_t> kPublished[] = {{"dinov3-vits16", 21'596'544},
                                                              {"dinov3-vits16plus", 28'692'864},
                                                              {"dinov3-vitb16", 85'660'416},
                                                              {"dinov3-vitl16", 303'129'600}};
  for (const auto& [name, count] : kPublished)
    EXPECT_EQ(model_spec::ParameterCount(*model_spec::FindBackbone(name)), count);

  model_spec::BackboneOptions gated = Small();
  gated.gated = true;
  gated.channels = 4;
  for (const model_spec::BackboneOptions& config : {*model_spec::FindBackbone("dinov3-tiny"), gated}) {
    const Backbone backbone(config);
    std::int64_t count = 0;
    for (const at::Tensor& parameter : backbone->parameters()) count += parameter.numel();
    EXPECT_EQ(count, model_spec::ParameterCount(config));
  }
}

TEST(Backbone, StartsAsTheSeedSaysAndSmall) {
  at::manual_seed(3);
  const Backbone one(Small());
  at::manual_seed(3);
  const Backbone other(Small());
  for (const auto& item : one->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), other->named_parameters()[item.key()])) << item.key();
  }
  const auto named = one->named_parameters();
  EXPECT_NEAR(named["layer.1.mlp.up_proj.weight"].std().item<double>(), 0.02, 0.002);
  EXPECT_EQ(named["layer.1.attention.q_proj.bias"].abs().max().item<double>(), 0);
  EXPECT_FALSE(named.contains("layer.1.attention.k_proj.bias"));
  EXPECT_FALSE(named["embeddings.mask_token"].requires_grad());
}

TEST(Backbone, OneImageDoesNotSeeAnother) {
  Backbone backbone(Small());
  backbone->eval();
  const at::Tensor images = at::randn({3, 3, 12, 20});
  const at::Tensor together = backbone->forward(images).tokens;
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(together[i], backbone->forward(images.slice(0, i, i + 1)).tokens[0], 1e-4, 1e-5)) << i;
  }
  const Features features = backbone->forward(images);
  EXPECT_EQ(features.Map().sizes(), at::IntArrayRef({3, 32, 3, 5}));
  EXPECT_TRUE(at::equal(features.Map()[1].select(1, 2).select(1, 4), features.tokens[1][5 + 2 * 5 + 4]));
}

TEST(DropPath, IsPerSampleGrowsWithTheLayersAndKeepsTheMean) {
  model_spec::BackboneOptions config = Small();
  config.layers = 5;
  config.drop_path = 0.4;
  ForwardRandom random{7, 2, 11, {}};
  for (std::uint64_t i = 0; i < 4000; ++i) random.samples.push_back(i);
  const at::Tensor factors = DropPathFactors(config, random);
  ASSERT_EQ(factors.sizes(), at::IntArrayRef({10, 4000, 1, 1}));
  EXPECT_EQ(factors.slice(0, 0, 2).ne(1).sum().item<std::int64_t>(), 0);
  for (std::int64_t row = 2; row < 10; ++row) {
    const double dropped = 0.1 * static_cast<double>(row / 2);
    const at::Tensor of_row = factors[row].flatten();
    EXPECT_NEAR(of_row.eq(0).to(at::kDouble).mean().item<double>(), dropped, 0.03) << row;
    EXPECT_NEAR(of_row.max().item<double>(), 1 / (1 - dropped), 1e-6) << row;
    EXPECT_NEAR(of_row.mean().item<double>(), 1, 0.06) << row;
  }
  // A sample's draw does not depend on the other samples of the batch.
  const at::Tensor few = DropPathFactors(config, {7, 2, 99, {17, 3}});
  EXPECT_TRUE(at::equal(few.select(1, 0), factors.select(1, 17)));
  EXPECT_TRUE(at::equal(few.select(1, 1), factors.select(1, 3)));
  random.epoch = 3;
  EXPECT_FALSE(at::equal(DropPathFactors(config, random), factors));
}

TEST(DropPath, DoesNotDependOnHowTheBatchIsSpread) {
  model_spec::BackboneOptions config = Small();
  config.drop_path = 0.5;
  config.rope_rescale = 2;
  Backbone backbone(config);
  const at::Tensor images = at::randn({4, 3, 8, 8});
  const ForwardRandom all{1, 0, 5, {30, 10, 20, 40}}, first{1, 0, 5, {30, 10}}, second{1, 0, 5, {20, 40}};
  const at::Tensor whole = backbone->forward(images, &all).tokens;
  const at::Tensor parts = at::cat(
      {backbone->forward(images.slice(0, 0, 2), &first).tokens, backbone->forward(images.slice(0, 2), &second).tokens});
  EXPECT_TRUE(at::allclose(whole, parts, 1e-4, 1e-5));
  const ForwardRandom next{1, 1, 6, {30, 10, 20, 40}};
  EXPECT_FALSE(at::allclose(whole, backbone->forward(images, &next).tokens, 1e-4, 1e-5));

  EXPECT_THAT(ErrorOf([&] { backbone->forward(images); }), HasSubstr("Give forward a ForwardRandom, or call eval()."));
  EXPECT_THAT(ErrorOf([&] { backbone->forward(images, &first); }),
              HasSubstr("the batch has 4 images, and forward was told the numbers of 2 samples."));
  backbone->eval();
  EXPECT_TRUE(at::allclose(backbone->forward(images).tokens, backbone->forward(images, &all).tokens));
}

TEST(RopeFactor, IsTheSameForAllRanksOfAStepAndWithinItsBounds) {
  model_spec::BackboneOptions config;
  EXPECT_EQ(RopeFactor(config, {1, 0, 5, {1}}), 1);
  config.rope_rescale = 2;
  std::set<double> seen;
  for (std::uint64_t step = 0; step < 200; ++step) {
    const double factor = RopeFactor(config, {1, 0, step, {1, 2}});
    EXPECT_EQ(factor, RopeFactor(config, {1, 3, step, {5}}));
    EXPECT_GT(factor, 0.5);
    EXPECT_LT(factor, 2);
    seen.insert(factor);
  }
  EXPECT_EQ(seen.size(), 200U);
  EXPECT_LT(*seen.begin(), 0.6);
  EXPECT_GT(*seen.rbegin(), 1.7);
}

TEST(Freeze, FreezesEmbeddingsAndLayers) {
  Backbone backbone(Small());
  const auto learning = [&] {
    std::set<std::string> names;
    for (const auto& item : backbone->named_parameters()) {
      if (item.value().requires_grad()) names.insert(item.key().substr(0, 7));
    }
    return names;
  };
  backbone->Freeze(2);
  EXPECT_EQ(learning(), (std::set<std::string>{"layer.2", "layer.3", "norm.we", "norm.bi"}));
  backbone->Freeze(-1);
  EXPECT_TRUE(learning().empty());
  EXPECT_FALSE(backbone->forward(at::randn({1, 3, 8, 8})).tokens.requires_grad());
  backbone->Freeze(0);
  EXPECT_EQ(learning().size(), 4U + 1U + 2U);
  EXPECT_THAT(
      ErrorOf([&] { backbone->Freeze(5); }),
      HasSubstr("the first 5 layers are to be frozen, and the backbone has 4: say 0 to 4, or -1 for all of it."));
}

TEST(Backbone, RefusesWhatCannotBe) {
  Backbone backbone(Small());
  for (const at::Tensor& images : {at::zeros({1, 4, 8, 8}), at::zeros({3, 8, 8}), at::zeros({1, 3, 3, 8})}) {
    EXPECT_THAT(
        ErrorOf([&] { backbone->forward(images); }),
        HasSubstr("the backbone takes images as [N, 3, H, W] with sides of at least 4 pixels, and was given ["));
  }
  const auto refusal = [](auto change) {
    model_spec::BackboneOptions config = Small();
    change(config);
    return ErrorOf([&] { Backbone made(config); });
  };
  EXPECT_THAT(refusal([](auto& config) { config.heads = 3; }), HasSubstr("dim 32 is not a multiple of 4 × 3 heads"));
  EXPECT_THAT(refusal([](auto& config) { config.drop_path = 1; }), HasSubstr("drop_path must be at least 0 and less"));
  EXPECT_THAT(refusal([](auto& config) { config.rope_rescale = 0.5; }), HasSubstr("rope_rescale must be 0 (none) or"));
  EXPECT_THAT(refusal([](auto& config) { config.layers = 0; }), HasSubstr("must be 1 or more"));
}

}  // namespace
}  // namespace fulldeck::dinov3
