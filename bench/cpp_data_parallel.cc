// Measures a step of a ViT-S-sized model (21 M parameters) with fulldeck::DataParallel in C++, and how much of it is
// communication. Model, batch and method are those of bench/ddp_step.py, so that the results are comparable.
//
//   fulldeck run --nproc-per-node 8 build/bench/cpp_data_parallel --steps 20      (or any launcher that sets RANK …)
//   build/bench/cpp_data_parallel --ranks 8 --steps 20                            (starts its own processes; CPU only)
//
// Rank 0 prints one JSON object. Communication is the median step minus the median step of the same ranks without
// synchronization, measured alternately. The duration of a step is that of its slowest rank.
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fulldeck/data_parallel.h"
#include "fulldeck/session.h"
#include "torch_backend/backend.h"

namespace {

constexpr double kRate = 0.01;

struct Options {
  int ranks = 0;  // 0: from the environment
  int steps = 20;
  int warm_up = 3;
  std::int64_t batch = 1;
  std::int64_t image = 32;
  std::int64_t width = 384;
  std::int64_t depth = 12;
  double bucket_mb = 25;
  bool cuda = false;
  bool check_finite = true;
  int hash_every = 50;
};

Options Read(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (i + 1 >= count) {
      std::fprintf(stderr, "cpp_data_parallel: %s: a value is missing\n", word.c_str());
      std::exit(2);
    }
    const char* const value = words[++i];
    const double number = std::strtod(value, nullptr);
    if (word == "--ranks") {
      options.ranks = static_cast<int>(number);
    } else if (word == "--steps") {
      options.steps = static_cast<int>(number);
    } else if (word == "--warm-up") {
      options.warm_up = static_cast<int>(number);
    } else if (word == "--batch") {
      options.batch = static_cast<std::int64_t>(number);
    } else if (word == "--image") {
      options.image = static_cast<std::int64_t>(number);
    } else if (word == "--width") {
      options.width = static_cast<std::int64_t>(number);
    } else if (word == "--depth") {
      options.depth = static_cast<std::int64_t>(number);
    } else if (word == "--bucket-mb") {
      options.bucket_mb = number;
    } else if (word == "--device") {
      options.cuda = std::strcmp(value, "cuda") == 0;
    } else if (word == "--check-finite") {
      options.check_finite = number != 0;
    } else if (word == "--hash-every") {
      options.hash_every = static_cast<int>(number);
    } else {
      std::fprintf(stderr,
                   "cpp_data_parallel: %s: not known. Options, each with a value: --ranks --device cpu|cuda --steps "
                   "--warm-up --batch --image --width --depth --bucket-mb --check-finite 0|1 --hash-every\n",
                   word.c_str());
      std::exit(2);
    }
  }
  if (options.steps < 1 || options.batch < 1 || options.depth < 1 || options.image < 16 || options.image % 16 != 0 ||
      options.width < 64 || options.width % 64 != 0 || options.ranks < 0) {
    std::fprintf(stderr, "cpp_data_parallel: --image is a multiple of 16, --width of 64, the rest at least 1\n");
    std::exit(2);
  }
  return options;
}

// ---- the model ----

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(std::int64_t width)
      : heads(width / 64),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        in(register_module("in", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}

  at::Tensor forward(const at::Tensor& tokens) {
    const std::int64_t width = tokens.size(2);
    const auto parts = in->forward(norm1->forward(tokens))
                           .view({tokens.size(0), tokens.size(1), 3, heads, width / heads})
                           .permute({2, 0, 3, 1, 4});
    const at::Tensor attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2])
                                    .transpose(1, 2)
                                    .reshape({tokens.size(0), tokens.size(1), width});
    const at::Tensor after = tokens + out->forward(attended);
    return after + down->forward(at::gelu(up->forward(norm2->forward(after))));
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear in, out;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Layer);

// Patches of 16, heads of 64, ten classes.
struct VisionTransformer : torch::nn::Module {
  explicit VisionTransformer(const Options& options) {
    const std::int64_t width = options.width;
    const std::int64_t side = options.image / 16;
    patches = register_module("patches", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, width, 16).stride(16)));
    token = register_parameter("token", at::zeros({width}));
    places = register_parameter("places", at::zeros({side * side + 1, width}));
    for (std::int64_t i = 0; i < options.depth; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), Layer(width)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    head = register_module("head", torch::nn::Linear(width, 10));
  }
  at::Tensor forward(const at::Tensor& images) {
    at::Tensor tokens = patches->forward(images).flatten(2).transpose(1, 2);
    tokens = at::cat({token.expand({images.size(0), 1, -1}), tokens}, 1) + places;
    for (Layer& layer : layers) tokens = layer->forward(tokens);
    return head->forward(norm->forward(tokens).select(1, 0));
  }

  torch::nn::Conv2d patches{nullptr};
  at::Tensor token, places;
  std::vector<Layer> layers;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};

// ---- one rank ----

// For processes started by this program, on the CPU.
fulldeck::Team MakeTeam(const Options& options, int rank, const c10::intrusive_ptr<c10d::Store>& store) {
  const int size = options.ranks;
  fulldeck::Team team;
  team.rank = rank;
  team.world_size = size;
  team.local_rank = rank;
  team.store = store;
  fulldeck::torch_backend::BackendRequest request;
  request.store = c10::make_intrusive<c10d::PrefixStore>("backend", store);
  request.rank = rank;
  request.size = size;
  request.check_finite = options.check_finite;
  const auto backend = fulldeck::torch_backend::MakeBackend(request);
  team.group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  team.group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  team.group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return team;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void RunRank(const Options& options, const fulldeck::Team& team) {
  at::set_num_threads(1);
  at::manual_seed(0);
  auto net = std::make_shared<VisionTransformer>(options);
  net->to(team.device);
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : net->parameters()) parameters += parameter.numel();
  fulldeck::DataParallelOptions wrapping;
  wrapping.bucket_bytes = static_cast<std::int64_t>(options.bucket_mb * 1024 * 1024);
  wrapping.check_finite = options.check_finite;
  wrapping.hash_every = options.hash_every;
  fulldeck::DataParallel model(net, team, wrapping);
  torch::optim::SGD optimizer(net->parameters(), kRate);
  at::manual_seed(1 + static_cast<std::uint64_t>(team.rank));
  std::vector<at::Tensor> losses;
  std::vector<double> waits;

  const auto finish = [&] {
    if (options.cuda) c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(team.device).synchronize();
  };
  const auto step = [&](bool synchronised) {
    const at::Tensor images =
        at::randn({options.batch, 3, options.image, options.image}, at::TensorOptions(team.device));
    const at::Tensor labels = at::randint(10, {options.batch}, at::TensorOptions(team.device).dtype(at::kLong));
    // Without synchronization the ranks would diverge. With a learning rate of 0 the optimizer does the same work and
    // changes nothing.
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(synchronised ? kRate : 0.0);
    optimizer.zero_grad(/*set_to_none=*/false);
    finish();
    team.group->barrier()->wait();
    const auto began = std::chrono::steady_clock::now();
    at::Tensor loss;
    if (synchronised) {
      loss = torch::nn::functional::cross_entropy(model.Forward(images), labels);
      loss.backward();
      model.Step(optimizer);
    } else {
      const auto guard = model.NoSync();
      loss = torch::nn::functional::cross_entropy(model.Forward(images), labels);
      loss.backward();
      optimizer.step();
    }
    finish();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (synchronised) {
      losses.push_back(loss.detach().to(at::kCPU, at::kDouble).view({1}));
      if (const auto wait = model.communication_wait()) waits.push_back(std::chrono::duration<double>(*wait).count());
    }
    return took;
  };

  for (int i = 0; i < options.warm_up; ++i) {
    step(true);
    step(false);
  }
  at::Tensor times = at::empty({options.steps, 2}, at::kDouble);
  for (int i = 0; i < options.steps; ++i) {
    times[i][0] = step(true);
    times[i][1] = step(false);
  }
  c10d::AllreduceOptions largest;
  largest.reduceOp = c10d::ReduceOp::MAX;
  std::vector<at::Tensor> slowest = {times};
  team.group->allreduce(slowest, largest)->wait();
  std::vector<at::Tensor> sums = {at::cat(losses)};
  team.group->allreduce(sums)->wait();
  if (team.rank != 0) return;
  std::vector<double> with;
  std::vector<double> without;
  for (int i = 0; i < options.steps; ++i) {
    with.push_back(times[i][0].item<double>());
    without.push_back(times[i][1].item<double>());
  }
  std::string means;
  const at::Tensor mean = sums[0] / team.world_size;
  for (std::int64_t i = 0; i < mean.numel(); ++i) {
    char text[32];
    std::snprintf(text, sizeof text, "%s%.9g", i == 0 ? "" : ", ", mean[i].item<double>());
    means += text;
  }
  std::printf(
      "{\"backend\": \"fulldeck, C++\", \"torch\": \"%s\", \"ranks\": %d, \"device\": \"%s\", \"parameters\": %lld, "
      "\"steps\": %d, \"step_s\": %.6f, \"step_without_sync_s\": %.6f, \"communication_s\": %.6f, "
      "\"waited_s\": %.6f, \"buckets\": %zu, \"reductions\": %llu, \"losses\": [%s]}\n",
      TORCH_VERSION, team.world_size, options.cuda ? "cuda" : "cpu", static_cast<long long>(parameters), options.steps,
      Median(with), Median(without), Median(with) - Median(without), waits.empty() ? 0.0 : Median(waits),
      model.buckets(), static_cast<unsigned long long>(model.reductions()), means.c_str());
  std::fflush(stdout);
}

int Protected(const std::function<void()>& rank) {
  try {
    rank();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpp_data_parallel: %s\n", error.what());
    return 1;
  }
}

void RunUnderLauncher(const Options& options) {
  fulldeck::SessionOptions wanted;
  wanted.device = options.cuda ? "cuda" : "cpu";
  wanted.backend = "fulldeck";
  wanted.share_cards = true;
  const auto session = fulldeck::Session::FromEnvironment(wanted);
  RunRank(options, session->team());
}

void RunAlone(const Options& options, int rank, const std::string& file) {
  const fulldeck::Team team = MakeTeam(options, rank, c10::make_intrusive<c10d::FileStore>(file, -1));
  RunRank(options, team);
  team.group->barrier()->wait();
  fulldeck::torch_backend::ShutdownAllBackends();
}

}  // namespace

int main(int count, char** words) {
  const Options options = Read(count, words);
  if (options.ranks == 0) return Protected([&] { RunUnderLauncher(options); });
  char folder[] = "/tmp/fulldeck-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string file = std::string(folder) + "/store";
  // Fork before torch starts any thread.
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      const int code = Protected([&] { RunAlone(options, rank, file); });
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) worst = 1;
  }
  unlink(file.c_str());
  rmdir(folder);
  return worst;
}
