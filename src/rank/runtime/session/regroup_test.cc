// Data parallel training with micro-batches: one rank runs out of memory, and all switch to a new group and smaller
// micro-batches.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <optional>

#include "fulldeck/data_parallel.h"
#include "fulldeck/micro_batches.h"
#include "fulldeck/replica_check.h"
#include "runtime/out_of_memory_for_test.h"
#include "runtime/session/session_for_test.h"

namespace fulldeck::runtime {
namespace {

using torch_backend::RankOfTest;

constexpr std::int64_t kSamples = 16;  // of a rank per step
constexpr int kSteps = 5;
constexpr int kFaultyStep = 2;

struct Net : torch::nn::Module {
  Net()
      : in(register_parameter("in", at::randn({6, 32}) * 0.3)),
        out(register_parameter("out", at::randn({32, 3}) * 0.3)) {}
  at::Tensor forward(const at::Tensor& x) { return at::matmul(at::tanh(at::matmul(x, in)), out); }
  at::Tensor in, out;
};

enum class Place { kNowhere, kForward, kBackward, kOptimizer };

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
  int halved = 0;
};

Outcome Train(Session& session, std::int64_t micro_batch, Place place) {
  session.Seed(1);
  auto net = std::make_shared<Net>();
  DataParallelOptions wrapping;
  wrapping.hash_every = 2;
  DataParallel model(net, session, wrapping);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.05));
  Outcome outcome;
  int step = 0;
  bool failed = false;
  const auto is_due = [&](Place here, std::int64_t size) {
    return place == here && step == kFaultyStep && session.rank() == 1 && size >= kSamples;
  };
  MicroBatchOptions options;
  options.micro_batch = micro_batch;
  options.oom = place == Place::kNowhere ? OutOfMemory::kFail : OutOfMemory::kHalve;
  options.apply = [&] {
    if (place == Place::kOptimizer && step == kFaultyStep && session.rank() == 1 && !failed) {
      failed = true;
      const c10::NoGradGuard no_grad;
      net->in.add_(100);
      RunOutOfMemory();
    }
    model.Step(optimizer);
  };
  MicroBatches micro(session, optimizer, options);
  for (; step < kSteps; ++step) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * step + session.rank()));
    const at::Tensor inputs = at::randn({kSamples, 6}, generator);
    const at::Tensor targets = inputs.narrow(1, 0, 3) * 2 + 1;
    double loss_of_step = 0;
    micro.Run(kSamples, [&](const MicroBatch& part) {
      if (part.index == 0) loss_of_step = 0;
      std::optional<DataParallelCore::Unsynchronised> quiet;
      if (!part.is_last()) quiet.emplace(model);
      if (is_due(Place::kForward, part.size)) RunOutOfMemory();
      const at::Tensor y = FailingBackward::apply(model.Forward(inputs.narrow(0, part.begin, part.size)),
                                                  is_due(Place::kBackward, part.size));
      at::Tensor loss = (y - targets.narrow(0, part.begin, part.size)).pow(2).mean() * part.weight();
      loss.backward();
      loss_of_step += loss.item<double>();
    });
    outcome.losses.push_back(MeanOverRanks(session.team(), at::scalar_tensor(loss_of_step, at::kDouble)));
  }
  for (const at::Tensor& parameter : net->parameters()) outcome.weights.push_back(parameter.detach().clone());
  outcome.halved = micro.times_halved();
  return outcome;
}

void ExpectTheSameTraining(Place place) {
  torch_backend::RanksOptions ranks;
  RunSession(
      3,
      [&](const RankOfTest&) {
        const auto session = Session::FromEnvironment();
        const Outcome expected = Train(*session, kSamples / 2, Place::kNowhere);
        const Outcome outcome = Train(*session, kSamples, place);
        MUST(outcome.halved == 1);
        for (int step = 0; step < kSteps; ++step) {
          MUST(std::abs(outcome.losses[static_cast<std::size_t>(step)] -
                        expected.losses[static_cast<std::size_t>(step)]) < 1e-5);
        }
        std::vector<NamedTensor> weights;
        for (std::size_t i = 0; i < outcome.weights.size(); ++i) {
          MUST(at::allclose(outcome.weights[i], expected.weights[i], 1e-4, 1e-5));
          weights.push_back({std::to_string(i), outcome.weights[i]});
        }
        MUST(CompareOverRanks(session->team(), weights).empty());
      },
      ranks);
}

TEST(Regroup, AfterOneRankRanOutOfMemoryInForwardAllTrainOnWithHalfTheMicroBatch) {
  ExpectTheSameTraining(Place::kForward);
}
TEST(Regroup, AfterOneRankRanOutOfMemoryInBackwardAllTrainOnWithHalfTheMicroBatch) {
  ExpectTheSameTraining(Place::kBackward);
}
TEST(Regroup, AfterOneRankRanOutOfMemoryInTheOptimizerAllTrainOnWithHalfTheMicroBatch) {
  ExpectTheSameTraining(Place::kOptimizer);
}

}  // namespace
}  // namespace fulldeck::runtime
