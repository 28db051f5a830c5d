// For tests of data parallel training: a team of processes on the CPU, a small module, and a backend other than
// fulldeck's.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <string>
#include <utility>
#include <vector>

#include "fulldeck/data_parallel.h"
#include "fulldeck/replica_check.h"
#include "torch_backend/ranks_for_test.h"

namespace fulldeck {

using torch_backend::Has;
using torch_backend::RankOfTest;
using torch_backend::RunRanks;

inline Team TeamWith(const RankOfTest& self, const c10::intrusive_ptr<c10d::Backend>& backend) {
  Team team;
  team.rank = self.rank;
  team.world_size = self.size;
  team.local_rank = self.rank;
  team.store = self.store;
  team.group = c10::make_intrusive<c10d::ProcessGroup>(self.store, self.rank, self.size);
  team.group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  team.group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  team.timeout = std::chrono::seconds(60);
  return team;
}
inline Team TeamOf(const RankOfTest& self, bool check_finite = true) {
  torch_backend::BackendRequest request = self.Request();
  request.check_finite = check_finite;
  return TeamWith(self, torch_backend::MakeBackend(request));
}

// Like a backend that neither averages nor checks for NaN, such as Gloo.
class PlainBackend : public c10d::Backend {
 public:
  explicit PlainBackend(const RankOfTest& self, bool lies = false)
      : c10d::Backend(self.rank, self.size), inner_(self.Backend()), lies_(lies) {}
  const std::string getBackendName() const override { return "plain"; }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    auto work = inner_->broadcast(tensors, options);
    if (lies_) {
      work->wait();
      tensors[0].view(-1)[0].add_(1);
    }
    return work;
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "only sums");
    return inner_->allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return inner_->allgather(outputs, inputs, options);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  const bool lies_;
};

constexpr std::int64_t kInputs = 12;
constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kBatch = 32;  // over all ranks

// Two layers, an optional branch, and a buffer.
struct SmallNet : torch::nn::Module {
  explicit SmallNet(std::uint64_t seed = 1, std::int64_t hidden = kHidden) {
    at::manual_seed(seed);
    const auto add = [&](const char* name, const at::Tensor& value) { return register_parameter(name, value * 0.3); };
    first_weight = add("first_weight", at::randn({hidden, kInputs}));
    first_bias = add("first_bias", at::randn({hidden}));
    branch_weight = add("branch_weight", at::randn({hidden, hidden}));
    last_weight = add("last_weight", at::randn({1, hidden}));
    seen = register_buffer("seen", at::full({1}, static_cast<double>(seed)));
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor hidden = at::tanh(at::linear(input, first_weight, first_bias));
    if (uses_branch) hidden = hidden + at::tanh(at::linear(hidden, branch_weight));
    return at::linear(hidden, last_weight);
  }
  at::Tensor first_weight, first_bias, branch_weight, last_weight, seen;
  bool uses_branch = true;
};

// The same on every rank; row i of step s does not depend on the number of ranks.
inline at::Tensor WholeBatch(int step) {
  at::manual_seed(1000 + step);
  return at::randn({kBatch, kInputs});
}
inline at::Tensor PartOf(const at::Tensor& batch, int rank, int size) {
  const std::int64_t rows = batch.size(0) / size;
  return batch.slice(0, rank * rows, (rank + 1) * rows);
}
inline at::Tensor LossOf(const at::Tensor& output) {
  return (output - 0.5).square().mean();
}

// A single rank with the whole batch and without the wrapper.
inline std::vector<double> TrainAlone(SmallNet& net, int steps) {
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = LossOf(net.forward(WholeBatch(step)));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

inline double Farthest(const torch::nn::Module& one, const torch::nn::Module& other) {
  double farthest = 0;
  const auto left = one.parameters();
  const auto right = other.parameters();
  MUST(left.size() == right.size());
  for (std::size_t i = 0; i < left.size(); ++i)
    farthest = std::max(farthest, (left[i] - right[i]).abs().max().item<double>());
  return farthest;
}
inline std::uint64_t HashOf(const torch::nn::Module& module) {
  std::uint64_t hash = 0;
  for (const at::Tensor& parameter : module.parameters()) hash = HashOfTensor(parameter, hash);
  return hash;
}
inline std::vector<NamedTensor> NamedParameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> named;
  for (const auto& item : module.named_parameters()) named.push_back({item.key(), item.value()});
  return named;
}

}  // namespace fulldeck
