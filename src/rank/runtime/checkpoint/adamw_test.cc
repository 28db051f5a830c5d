#include "fulldeck/adamw.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_optimizer.h"
#include "runtime/data_parallel/micro_batches_state.h"

namespace fulldeck {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::OptimizerParamGroup;

std::vector<at::Tensor> Parameters(at::ScalarType type = at::kFloat) {
  at::manual_seed(1);
  std::vector<at::Tensor> parameters;
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{7}, {33, 17}, {3, 4, 5}, {1}, {}})
    parameters.push_back(at::randn(shape, type).requires_grad_());
  return parameters;
}

// Two groups with different options.
template <typename Optimizer>
std::unique_ptr<Optimizer> Made(const std::vector<at::Tensor>& parameters, bool amsgrad = false) {
  const auto options = [&](double lr, double decay) {
    return std::make_unique<AdamWOptions>(
        AdamWOptions(lr).weight_decay(decay).betas({0.8, 0.95}).eps(1e-6).amsgrad(amsgrad));
  };
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), parameters.begin() + 2), options(0.01, 0.1));
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin() + 2, parameters.end()), options(0.05, 0));
  return std::make_unique<Optimizer>(groups, AdamWOptions(0.01));
}

enum class Gradients { kPlain, kTransposed };

void GiveGradients(const std::vector<at::Tensor>& parameters, int step, Gradients kind = Gradients::kPlain) {
  at::manual_seed(static_cast<std::uint64_t>(100 + step));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    at::Tensor gradient = at::randn(parameter.sizes(), parameter.options().requires_grad(false));
    if (kind == Gradients::kTransposed && parameter.dim() == 2) gradient = gradient.t().contiguous().t();
    // One of them is unused in some steps, and is behind the others from then on.
    parameter.mutable_grad() = i == 1 && step % 3 == 1 ? at::Tensor() : gradient;
  }
}

double Farthest(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  double farthest = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    farthest = std::max(farthest, (left[i] - right[i]).abs().max().item<double>());
  return farthest;
}

TEST(AdamW, StepsAsTorchsDoesWhateverTheGradientsAreLike) {
  ASSERT_TRUE(AdamW::IsFusedOn(c10::kCPU));
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const bool amsgrad : {false, true}) {
      for (const Gradients kind : {Gradients::kPlain, Gradients::kTransposed}) {
        const auto mine = Parameters(type), torch_parameters = Parameters(type), start = Parameters(type);
        const auto optimizer = Made<AdamW>(mine, amsgrad);
        const auto reference = Made<torch::optim::AdamW>(torch_parameters, amsgrad);
        for (int step = 0; step < 20; ++step) {
          GiveGradients(mine, step, kind);
          GiveGradients(torch_parameters, step, kind);
          if (step == 10) {
            for (auto& group : optimizer->param_groups()) group.options().set_lr(0.002);
            for (auto& group : reference->param_groups()) group.options().set_lr(0.002);
          }
          optimizer->step();
          reference->step();
        }
        EXPECT_GT(Farthest(mine, start), 0.05);
        EXPECT_LT(Farthest(mine, torch_parameters), 2e-6) << type << (amsgrad ? ", amsgrad" : "");
        for (std::size_t i = 0; i < mine.size(); ++i) {
          const auto& kept = static_cast<AdamWParamState&>(*optimizer->state()[mine[i].unsafeGetTensorImpl()]);
          const auto& wanted =
              static_cast<AdamWParamState&>(*reference->state()[torch_parameters[i].unsafeGetTensorImpl()]);
          EXPECT_EQ(kept.step(), wanted.step());
          EXPECT_TRUE(at::allclose(kept.exp_avg(), wanted.exp_avg(), 1e-4, 1e-6));
          EXPECT_TRUE(at::allclose(kept.exp_avg_sq(), wanted.exp_avg_sq(), 1e-4, 1e-6));
        }
      }
    }
  }
}

TEST(AdamW, GoesOnWhereTorchsStopped) {
  const auto mine = Parameters(), torch_parameters = Parameters();
  const auto optimizer = Made<AdamW>(mine);
  const auto reference = Made<torch::optim::AdamW>(torch_parameters);
  for (int step = 0; step < 5; ++step) {
    GiveGradients(torch_parameters, step);
    reference->step();
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i].detach().copy_(torch_parameters[i].detach());
    const auto& state = static_cast<AdamWParamState&>(*reference->state()[torch_parameters[i].unsafeGetTensorImpl()]);
    auto copy = std::make_unique<AdamWParamState>();
    copy->step(state.step());
    copy->exp_avg(state.exp_avg().clone());
    copy->exp_avg_sq(state.exp_avg_sq().clone());
    optimizer->state()[mine[i].unsafeGetTensorImpl()] = std::move(copy);
  }
  for (int step = 5; step < 10; ++step) {
    GiveGradients(mine, step);
    GiveGradients(torch_parameters, step);
    optimizer->step();
    reference->step();
  }
  EXPECT_LT(Farthest(mine, torch_parameters), 2e-6);
}

TEST(AdamW, IsAnAdamWToCheckpointsAndMicroBatches) {
  const auto parameters = Parameters();
  const auto optimizer = Made<AdamW>(parameters);
  EXPECT_EQ(runtime::KindOf(*optimizer), "AdamW");
  GiveGradients(parameters, 0);
  optimizer->step();
  const std::vector<at::Tensor> before = {parameters[0].detach().clone(), parameters[1].detach().clone()};
  const runtime::OptimizerSnapshot snapshot(*optimizer);
  GiveGradients(parameters, 2);
  optimizer->step();
  EXPECT_FALSE(at::equal(parameters[0], before[0]));
  snapshot.Restore(*optimizer);
  EXPECT_TRUE(at::equal(parameters[0], before[0]));
  EXPECT_TRUE(at::equal(parameters[1], before[1]));
  EXPECT_EQ(static_cast<AdamWParamState&>(*optimizer->state()[parameters[0].unsafeGetTensorImpl()]).step(), 1);
}

TEST(AdamW, RunsAClosureAndRefusesSparseGradients) {
  const auto parameters = Parameters();
  AdamW optimizer(parameters, AdamWOptions(0.1));
  const at::Tensor loss = optimizer.step([&] {
    const at::Tensor value = parameters[1].square().sum();
    value.backward();
    return value;
  });
  EXPECT_GT(loss.item<double>(), 0);
  EXPECT_LT(parameters[1].square().sum().item<double>(), loss.item<double>());
  EXPECT_EQ(optimizer.state().count(parameters[0].unsafeGetTensorImpl()), 0U);  // had no gradient
  parameters[1].mutable_grad() = at::eye(33, 17).to_sparse();
  try {
    optimizer.step();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("AdamW does not take sparse gradients."));
  }
}

}  // namespace
}  // namespace fulldeck
