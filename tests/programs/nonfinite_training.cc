// A training program that uses only the public headers, for tests/launcher/test_root_cause.py: in step STEP the batch
// of rank RANK contains a NaN.
//
//   nonfinite_training RANK STEP
#include <ATen/ATen.h>
#include <fulldeck/data_parallel.h>
#include <fulldeck/session.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

struct Net : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(8, 4));
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
};

int main(int argc, char** argv) try {
  if (argc != 3) throw fulldeck::Error("usage: nonfinite_training RANK STEP");
  const int rank = std::atoi(argv[1]);
  const int last = std::atoi(argv[2]);
  auto session = fulldeck::Session::FromEnvironment();
  auto net = std::make_shared<Net>();
  net->to(session->device());
  fulldeck::DataParallel model(net, *session);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
  for (int step = 1; step <= last; ++step) {
    auto clock = session->BeginStep();
    at::Tensor inputs = at::ones({2, 8});
    if (step == last && session->rank() == rank) inputs[1][3] = std::numeric_limits<float>::quiet_NaN();
    optimizer.zero_grad();
    const at::Tensor loss = model.Forward(inputs.to(session->device())).square().mean();
    loss.backward();
    model.Step(optimizer);
    clock.Done(0.0, 2);
  }
  std::puts("no NaN was noticed");
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return EXIT_FAILURE;
}
