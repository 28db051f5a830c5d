#include "fulldeck/sync_batch_norm.h"

#include <ATen/ops/native_batch_norm.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "fulldeck/data_parallel.h"
#include "runtime/data_parallel/data_parallel_for_test.h"

namespace fulldeck {
namespace {

struct Row {
  std::vector<std::int64_t> rows;  // of the batch, per rank
  std::vector<std::int64_t> rest;  // dimensions after the features
  at::ScalarType type = at::kDouble;
  bool affine = true;
  std::optional<double> momentum = 0.1;
};

constexpr std::int64_t kFeatures = 5;

double Farthest(const at::Tensor& one, const at::Tensor& other) {
  MUST(one.sizes() == other.sizes());
  return one.numel() == 0 ? 0 : (one.to(at::kDouble) - other.to(at::kDouble)).abs().max().item<double>();
}

void Compare(const RankOfTest& self, const Team& team, const Row& row) {
  std::int64_t total = 0;
  std::int64_t begin = 0;
  for (int rank = 0; rank < self.size; ++rank) {
    if (rank == self.rank) begin = total;
    total += row.rows[static_cast<std::size_t>(rank)];
  }
  const std::int64_t mine = row.rows[static_cast<std::size_t>(self.rank)];
  std::vector<std::int64_t> shape = {total, kFeatures};
  shape.insert(shape.end(), row.rest.begin(), row.rest.end());

  SyncBatchNormOptions options(kFeatures);
  options.affine = row.affine;
  options.momentum = row.momentum;
  SyncBatchNorm layer(team, options);
  layer->to(row.type);
  torch::nn::BatchNorm1dOptions plain_options(kFeatures);
  plain_options.affine(row.affine).momentum(row.momentum);
  torch::nn::BatchNorm1d plain(plain_options);
  plain->to(row.type);
  if (row.affine) {
    const c10::AutoGradMode no_grad(false);
    at::manual_seed(5);
    plain->weight.copy_(at::randn({kFeatures}));
    plain->bias.copy_(at::randn({kFeatures}));
    layer->weight.copy_(plain->weight);
    layer->bias.copy_(plain->bias);
  }
  const double tolerance = row.type == at::kDouble ? 1e-12 : 1e-6;
  for (int step = 0; step < 2; ++step) {
    at::manual_seed(100 + step);
    // The mean is large compared with the deviation: sums of squares would lose it.
    const at::Tensor whole = (at::randn(shape, row.type) + 3).requires_grad_();
    const at::Tensor slope = at::randn(shape, row.type);
    const at::Tensor part = whole.detach().slice(0, begin, begin + mine).clone().requires_grad_();
    const at::Tensor output = layer->forward(part);
    // 3-dimensional for BatchNorm1d, whatever dimensions follow the features.
    const at::Tensor expected = plain->forward(whole.flatten(2 < whole.dim() ? 2 : 1)).view(shape);
    MUST(Farthest(output, expected.slice(0, begin, begin + mine)) < 10 * tolerance);
    (output * slope.slice(0, begin, begin + mine)).sum().backward();
    (expected * slope).sum().backward();
    MUST(Farthest(part.grad(), whole.grad().slice(0, begin, begin + mine)) < 10 * tolerance);
    if (row.affine) {
      // Sums over the ranks, as for the whole batch.
      std::vector<at::Tensor> gradients = {at::cat({layer->weight.grad(), layer->bias.grad()})};
      team.group->allreduce(gradients)->wait();
      const double size = std::max(1.0, plain->weight.grad().abs().max().item<double>());
      MUST(Farthest(gradients[0], at::cat({plain->weight.grad(), plain->bias.grad()})) < 100 * tolerance * size);
      layer->zero_grad();
      plain->zero_grad();
    }
  }
  MUST(Farthest(layer->running_mean, plain->running_mean) < 10 * tolerance);
  MUST(Farthest(layer->running_var, plain->running_var) < 10 * tolerance);
  MUST(layer->num_batches_tracked.item<std::int64_t>() == 2);
  MUST(CompareOverRanks(team, {{"mean", layer->running_mean}, {"var", layer->running_var}}).empty());
  // Evaluation does not communicate: a single rank may do it.
  layer->eval();
  plain->eval();
  if (self.rank == 0) {
    const at::Tensor input = at::randn({3, kFeatures}, row.type);
    MUST(Farthest(layer->forward(input), plain->forward(input)) < 10 * tolerance);
  }
}

TEST(SyncBatchNorm, IsThatOfOneRankWithTheWholeBatch) {
  RunRanks(4, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      Compare(self, team, {{4, 4, 4, 4}, {3, 2}, type});
      Compare(self, team, {{1, 7, 2, 3}, {}, type});                       // uneven
      Compare(self, team, {{3, 0, 1, 2}, {4}, type});                      // a rank with no samples
      Compare(self, team, {{0, 0, 2, 0}, {2, 2, 2}, type, false});         // all samples on one rank; no weights
      Compare(self, team, {{2, 3, 4, 5}, {2}, type, true, std::nullopt});  // the cumulative mean of all batches
    }
  });
}

TEST(SyncBatchNorm, RefusesWhatHasNoVariance) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    SyncBatchNorm layer(team, SyncBatchNormOptions(3));
    MUST(Has(MUST_THROW(layer->forward(at::randn({self.rank, 3}))), "fewer than two values a feature"));
    MUST(Has(MUST_THROW(layer->forward(at::randn({4, 2}))), "was given a tensor of 2 dimensions with 2 features"));
    MUST(Has(MUST_THROW(layer->forward(at::randn({4}))), "of 1 dimensions"));
    MUST(Has(MUST_THROW(SyncBatchNorm(team, SyncBatchNormOptions(0))), "0 features"));
  });
}

TEST(SyncBatchNorm, TakesThePlaceOfPlainLayersInASequential) {
  RunRanks(2, [](const RankOfTest& self) {
    const Team team = TeamOf(self);
    at::manual_seed(1);
    torch::nn::Sequential plain(torch::nn::Linear(kInputs, 6), torch::nn::BatchNorm1d(6), torch::nn::Tanh(),
                                torch::nn::BatchNorm1d(6));
    MUST((UnsyncedBatchNorms(*plain) == std::vector<std::string>{"1", "3"}));
    torch::nn::Sequential synced = SyncedBatchNorm(plain, team);
    MUST(UnsyncedBatchNorms(*synced).empty());
    // The same tensors under the same names, so optimizers and checkpoints need no change.
    const auto left = plain->named_parameters();
    const auto right = synced->named_parameters();
    MUST(left.size() == right.size() && left.size() == 6);
    for (const auto& item : left) MUST(right[item.key()].is_same(item.value()));

    // Wrapped and trained like a single rank with the whole batch.
    torch::nn::Sequential alone(torch::nn::Linear(kInputs, 6), torch::nn::BatchNorm1d(6), torch::nn::Tanh(),
                                torch::nn::BatchNorm1d(6));
    {
      const c10::AutoGradMode no_grad(false);
      for (const auto& item : alone->named_parameters()) at::Tensor(item.value()).copy_(left[item.key()]);
    }
    struct Wrapped : torch::nn::Module {
      explicit Wrapped(torch::nn::Sequential of) : layers(register_module("layers", std::move(of))) {}
      at::Tensor forward(const at::Tensor& input) { return layers->forward(input); }
      torch::nn::Sequential layers;
    };
    auto net = std::make_shared<Wrapped>(synced);
    DataParallel model(net, team);
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    torch::optim::SGD alone_optimizer(alone->parameters(), 0.05);
    at::manual_seed(9);
    const at::Tensor target = at::randn({kBatch, 6});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      alone_optimizer.zero_grad();
      const at::Tensor output = model.Forward(PartOf(WholeBatch(step), self.rank, self.size));
      (output - PartOf(target, self.rank, self.size)).square().mean().backward();
      model.Step(optimizer);
      (alone->forward(WholeBatch(step)) - target).square().mean().backward();
      alone_optimizer.step();
    }
    const auto expected = alone->named_parameters();
    for (const auto& item : synced->named_parameters()) MUST(Farthest(item.value(), expected[item.key()]) < 2e-6);
  });
}

}  // namespace
}  // namespace fulldeck
