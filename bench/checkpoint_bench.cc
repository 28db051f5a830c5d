// Measures checkpoints of a state of 300 million parameters with AdamW (3.6 GB, the size of a ViT-L), on one rank.
//
//   checkpoint_bench DIRECTORY [SAVES [LAYERS]]
//
// Prints one "name value unit" per line: the time of a plain memcpy of the state, how long a save blocks training, when
// it is durable, and how long loading takes with full verification, from the page cache and from disk. Needs 8 GiB of
// memory and 11 GB of disk. bench/checkpoint_peer.py does the same with torch.save and torch.load.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fulldeck/checkpoint.h>
#include <sys/mman.h>
#include <torch/optim/adamw.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Model : torch::nn::Module {
  explicit Model(int layers) {
    for (int layer = 0; layer < layers; ++layer) {
      const std::string name = "layer_" + std::to_string(layer) + "_";
      for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"})
        Add(name + projection + std::string("_weight"), {1024, 1024});
      Add(name + "up_proj_weight", {4096, 1024});
      Add(name + "up_proj_bias", {4096});
      Add(name + "down_proj_weight", {1024, 4096});
      for (const char* small : {"norm1_weight", "norm1_bias", "norm2_weight", "norm2_bias"}) Add(name + small, {1024});
    }
  }
  void Add(const std::string& name, std::vector<std::int64_t> sizes) {
    register_parameter(name, at::empty(sizes).uniform_(-1, 1));
  }
};

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Print(const char* name, double value, const char* unit) {
  std::printf("%-44s %10.3f %s\n", name, value, unit);
  std::fflush(stdout);
}

// Copies each tensor with one memcpy, on one thread, into already mapped memory: the lower bound for an ordinary copy
// of the state.
double PlainCopy(const std::vector<at::Tensor>& tensors, int times) {
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  madvise(mapped, bytes, MADV_HUGEPAGE);
  std::memset(mapped, 1, bytes);
  std::vector<double> took;
  for (int i = 0; i < times; ++i) {
    const auto began = Clock::now();
    auto* at = static_cast<unsigned char*>(mapped);
    for (const at::Tensor& tensor : tensors) {
      std::memcpy(at, tensor.const_data_ptr(), tensor.nbytes());
      at += tensor.nbytes();
    }
    took.push_back(Seconds(began));
  }
  munmap(mapped, bytes);
  return Median(took);
}

void DropFromPageCache(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int fd = open(entry.path().c_str(), O_RDONLY);
    if (fd < 0) continue;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

int Measure(const std::string& directory, int saves, int layers) {
  Model model(layers);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-4));
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : model.parameters()) {
    auto kept = std::make_unique<torch::optim::AdamWParamState>();
    kept->step(1000);
    kept->exp_avg(parameter.detach().mul(0.5));
    kept->exp_avg_sq(parameter.detach().mul(0.25));
    for (const at::Tensor& tensor : {parameter.detach(), kept->exp_avg(), kept->exp_avg_sq()}) all.push_back(tensor);
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(kept);
  }
  double bytes = 0;
  for (const at::Tensor& tensor : all) bytes += static_cast<double>(tensor.nbytes());
  Print("state", bytes / 1e9, "GB");
  Print("tensors", static_cast<double>(all.size()), "");
  const double copy = PlainCopy(all, 5);
  Print("plain memcpy of the state, one thread", copy, "s");
  all.clear();

  fulldeck::Team team;
  team.store = c10::make_intrusive<c10d::HashStore>();
  fulldeck::CheckpointOptions options;
  options.keep_last = 1;
  options.announce = false;
  fulldeck::State state;
  state.Module("model", model).Optimizer("optimizer", optimizer).Random();
  {
    fulldeck::Checkpoints checkpoints(directory, team, options);
    const auto began = Clock::now();
    checkpoints.Prepare(state);
    Print("memory for the copy, once", Seconds(began), "s");
    std::vector<double> stalls, durables;
    for (int i = 1; i <= saves; ++i) {
      const auto save = Clock::now();
      const fulldeck::SaveReport report = checkpoints.Save(i, state);
      stalls.push_back(std::chrono::duration<double>(report.stall).count());
      checkpoints.Finish();
      durables.push_back(Seconds(save));
    }
    Print("stall of a save, median", Median(stalls), "s");
    Print("stall of a save, most", *std::max_element(stalls.begin(), stalls.end()), "s");
    Print("stall / plain memcpy", Median(stalls) / copy, "");
    Print("durable after, median", Median(durables), "s");
  }
  fulldeck::Checkpoints checkpoints(directory, team, options);
  std::vector<double> loads;
  for (int i = 0; i < 3; ++i) loads.push_back(std::chrono::duration<double>(checkpoints.Load(state)->took).count());
  Print("load and verify, page cache warm, median", Median(loads), "s");
  DropFromPageCache(checkpoints.Load(state)->folder);
  Print("load and verify, page cache cold", std::chrono::duration<double>(checkpoints.Load(state)->took).count(), "s");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: checkpoint_bench DIRECTORY [SAVES [LAYERS]]\n");
    return 2;
  }
  try {
    return Measure(argv[1], argc > 2 ? std::atoi(argv[2]) : 5, argc > 3 ? std::atoi(argv[3]) : 24);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
    return 1;
  }
}
