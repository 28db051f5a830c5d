// A complete training program on the C++ runtime: any number of ranks, any device, and checkpoints from which it
// resumes.
//
//   fulldeck run --nproc-per-node 8 --no-python build/bin/example-train --global-batch 64 --steps 100
//
// It learns to which of four directions a point in 32 dimensions is closest. The last line is the loss of the last step
// over all ranks; it does not depend on the number of ranks.
#include <fulldeck/checkpoint.h>
#include <fulldeck/data_parallel.h>
#include <fulldeck/gradients.h>
#include <fulldeck/random.h>
#include <fulldeck/sampler.h>
#include <fulldeck/session.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <cstdlib>
#include <map>

constexpr std::int64_t kInputs = 32;
constexpr std::int64_t kClasses = 4;
constexpr std::uint64_t kSamples = 1 << 16;
constexpr char kKnown[] = "? Known: --global-batch N, --steps N, --seed N, --checkpoints DIR, --save-every N";

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kInputs, 128));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(128, kClasses));
  at::Tensor forward(const at::Tensor& x) { return out(at::gelu(in(x))); }
};

// Samples are generated from their indices, so every rank generates the same data for an index.
at::Tensor MakeInputs(const std::vector<std::uint64_t>& samples, std::uint64_t seed) {
  at::Tensor inputs = at::empty({static_cast<std::int64_t>(samples.size()), kInputs});
  float* value = inputs.data_ptr<float>();
  for (const std::uint64_t sample : samples) {
    fulldeck::RandomStream random(seed, fulldeck::Purpose::kUser, 0, sample);
    for (std::int64_t i = 0; i < kInputs; ++i) *value++ = static_cast<float>(random.Normal());
  }
  return inputs;
}

std::map<std::string, std::string> ReadOptions(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--global-batch", "64"}, {"--steps", "100"}, {"--seed", "42"}, {"--checkpoints", ""}, {"--save-every", "50"}};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !options.count(argv[i])) throw fulldeck::Error(std::string("what is ") + argv[i] + kKnown);
    options[argv[i]] = argv[i + 1];
  }
  return options;
}

int main(int argc, char** argv) try {
  auto options = ReadOptions(argc, argv);
  const std::int64_t steps = std::stoll(options["--steps"]);

  auto session = fulldeck::Session::FromEnvironment();
  session->Seed(std::stoull(options["--seed"]));
  auto net = std::make_shared<Net>();
  net->to(session->device());
  session->SeedDropout();
  fulldeck::DataParallel model(net, *session);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));
  const std::uint64_t global_batch = std::stoull(options["--global-batch"]);
  fulldeck::Sampler sampler({kSamples, global_batch, session->seed()}, session->team());

  fulldeck::State state;
  state.Module("model", *net).Optimizer("optimizer", optimizer).Object("sampler", sampler).Random();
  std::optional<fulldeck::Checkpoints> checkpoints;
  std::int64_t step = 0;
  if (!options["--checkpoints"].empty()) {
    checkpoints.emplace(options["--checkpoints"], session->team());
    if (const auto resumed = checkpoints->Load(state)) step = resumed->step;
    if (session->is_main()) std::fprintf(stderr, "example-train: begins at step %lld\n", static_cast<long long>(step));
  }
  session->SetProgress(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(steps), sampler.epoch());
  double loss_of_all = 0;
  while (step < steps) {
    auto clock = session->BeginStep();
    auto samples = sampler.Next();
    for (; !samples; samples = sampler.Next()) sampler.NextEpoch();
    const at::Tensor inputs = MakeInputs(samples->indices, session->seed()).to(session->device());
    const at::Tensor labels = inputs.reshape({-1, kClasses, kInputs / kClasses}).sum(2).argmax(1);
    clock.Enter(fulldeck::Phase::kCompute);
    optimizer.zero_grad();
    at::Tensor loss = torch::nn::functional::cross_entropy(model.Forward(inputs), labels);
    loss.backward();
    fulldeck::ClipGradNorm(model, 1.0);
    model.Step(optimizer);
    loss_of_all = fulldeck::MeanOverRanks(session->team(), loss);
    clock.Done(loss_of_all, samples->indices.size());
    if (++step % std::stoll(options["--save-every"]) == 0 && checkpoints) checkpoints->Save(step, state);
  }
  if (checkpoints) checkpoints->Finish();
  if (session->is_main()) std::printf("final loss %.9f\n", loss_of_all);
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  std::fprintf(stderr, "example-train: error: %s\n", error.what());
  return EXIT_FAILURE;
}
