// A small training program that uses only the public headers, for tests/runtime/test_checkpoints.py.
//
//   checkpoint_training train DIR STEPS EVERY   trains (AdamW, dropout) and saves every EVERY steps; resumes after a
//                                               kill. Prints "resumed N" and "final HASH".
//   checkpoint_training types DIR               saves one tensor of each type
//   checkpoint_training weights FILE            loads FILE into a module and prints its tensors, one value per line
#include <ATen/ATen.h>
#include <fulldeck/checkpoint.h>
#include <torch/optim/adamw.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Model : torch::nn::Module {
  Model() {
    first = register_parameter("first_weight", at::randn({64, 32}));
    bias = register_parameter("first_bias", at::zeros({64}));
    second = register_parameter("second_weight", at::randn({4, 64}));
    steps = register_buffer("steps", at::zeros({}, at::kLong));
  }
  at::Tensor first, bias, second, steps;
};

fulldeck::Team Alone() {
  fulldeck::Team team;
  team.store = c10::make_intrusive<c10d::HashStore>();
  return team;
}

std::uint64_t HashOf(torch::nn::Module& module) {
  std::uint64_t hash = 14695981039346656037U;
  for (const at::Tensor& parameter : module.parameters()) {
    const at::Tensor plain = parameter.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (std::size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  return hash;
}

int Train(const std::string& directory, std::int64_t steps, std::int64_t every) {
  at::manual_seed(7);
  Model model;
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.003));
  fulldeck::State state;
  state.Module("model", model).Optimizer("optimizer", optimizer).Random();
  fulldeck::Checkpoints checkpoints(directory, Alone());
  const auto resumed = checkpoints.Load(state);
  const std::int64_t done = resumed ? resumed->step : 0;
  std::printf("resumed %lld\n", static_cast<long long>(done));
  std::fflush(stdout);
  for (std::int64_t step = done + 1; step <= steps; ++step) {
    // The data is random too, so a generator in a wrong state shows in the result.
    const at::Tensor input = at::randn({16, 32});
    const at::Tensor hidden = at::dropout(at::relu(at::linear(input, model.first, model.bias)), 0.2, true);
    const at::Tensor loss = at::mse_loss(at::linear(hidden, model.second), at::ones({16, 4}));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    model.steps.add_(1);
    if (step % every == 0) checkpoints.Save(step, state);
  }
  checkpoints.Finish();
  std::printf("final %016llx\n", static_cast<unsigned long long>(HashOf(model)));
  return 0;
}

int Types(const std::string& directory) {
  fulldeck::State::NamedTensors tensors;
  const at::Tensor numbers = at::arange(12).view({3, 4});
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong})
    tensors[c10::toString(type)] = numbers.to(type);
  tensors["Bool"] = numbers.remainder(2).to(at::kBool);
  tensors["empty"] = at::zeros({0, 5});
  tensors["scalar"] = at::scalar_tensor(2.5);
  tensors["transposed"] = numbers.to(at::kFloat).t();
  tensors["name with \"quotes\" and \xc3\xa4"] = at::ones({1});
  fulldeck::State state;
  state.Tensors(
      "types", [&] { return tensors; }, [](const auto&) {});
  fulldeck::Checkpoints checkpoints(directory, Alone());
  checkpoints.Save(1, state);
  checkpoints.Finish();
  return 0;
}

int Weights(const std::string& path) {
  Model model;
  std::printf("%s", fulldeck::LoadWeights(model, path).Text().c_str());
  for (const at::Tensor& tensor :
       {model.first.detach(), model.bias.detach(), model.second.detach(), model.steps.to(at::kFloat)}) {
    const at::Tensor flat = tensor.reshape({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i) std::printf("value %a\n", flat[i].item<float>());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  try {
    if (mode == "train" && argc == 5) return Train(argv[2], std::atoll(argv[3]), std::atoll(argv[4]));
    if (mode == "types" && argc == 3) return Types(argv[2]);
    if (mode == "weights" && argc == 3) return Weights(argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: see the source\n");
  return 2;
}
