// A program with torch that has no fulldeck code loads the library like a vendor's, and trains on its cards.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "fulldeck/simulated_card.h"
#include "fulldeck/simulator.h"
#include "temporary_folder.h"

namespace fulldeck {
namespace {

using ::testing::HasSubstr;

struct Plugin {
  decltype(&fulldeck_torch_plugin_init) init;
  decltype(&fulldeck_torch_plugin_error) error;
  decltype(&fulldeck_simulator_counts) counts;
  decltype(&fulldeck_simulator_memory) memory;
};

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  ASSERT_NE(function, nullptr) << name;
}

Plugin Load() {
  Plugin plugin = {};
  void* const library = dlopen(FULLDECK_SIM_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  EXPECT_NE(library, nullptr) << dlerror();
  if (library == nullptr) return plugin;
  Find(library, "fulldeck_torch_plugin_init", plugin.init);
  Find(library, "fulldeck_torch_plugin_error", plugin.error);
  Find(library, "fulldeck_simulator_counts", plugin.counts);
  Find(library, "fulldeck_simulator_memory", plugin.memory);
  return plugin;
}

// A layer and its gradient, moved as any module is.
struct Layer : torch::nn::Module {
  Layer() {
    weight = register_parameter("weight", torch::linspace(-1, 1, 12).view({3, 4}));
    bias = register_parameter("bias", torch::zeros({3}));
    scale = register_buffer("scale", torch::full({3}, 0.5));
  }
  at::Tensor Loss(const at::Tensor& input) const {
    return (torch::addmm(bias, input, weight.t()).tanh() * scale).square().mean();
  }
  at::Tensor weight, bias, scale;
};

at::Tensor Trained(c10::Device device) {
  Layer layer;
  layer.to(device);
  EXPECT_EQ(layer.weight.device(), device);
  torch::optim::SGD optimizer(layer.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor input = torch::linspace(0, 1, 20).view({5, 4}).to(device);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    layer.Loss(input).backward();
    optimizer.step();
  }
  layer.to(c10::kCPU);
  return layer.weight.detach();
}

// The order matters: a refusal changes nothing, and a process has only one set of cards.
TEST(Plugin, RefusesUntilItIsConfiguredToSimulateAndThenTrainsOnEveryCard) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(setenv("FULLDECK_SIMULATE_DIR", folder.path().c_str(), 1), 0);
  unsetenv("FULLDECK_SIMULATE");
  const Plugin plugin = Load();
  ASSERT_NE(plugin.init, nullptr);
  EXPECT_EQ(plugin.init(), ENODEV);
  EXPECT_THAT(plugin.error(), HasSubstr("FULLDECK_SIMULATE is not set"));
  ASSERT_EQ(setenv("FULLDECK_SIMULATE", "gcu:lots", 1), 0);
  EXPECT_EQ(plugin.init(), EINVAL);
  for (const char* kind : {"cuda:2", "hip:2", "xpu:2"}) {
    ASSERT_EQ(setenv("FULLDECK_SIMULATE", kind, 1), 0);
    EXPECT_EQ(plugin.init(), ENODEV) << kind;
    EXPECT_THAT(plugin.error(), HasSubstr("of its own")) << kind;
  }
  EXPECT_ANY_THROW(c10::Device("gcu:0"));
  ASSERT_EQ(setenv("FULLDECK_SIMULATE", "gcu:8,memory=1MiB", 1), 0);
  ASSERT_EQ(plugin.init(), 0) << plugin.error();
  EXPECT_EQ(plugin.init(), 0);

  const at::Tensor expected = Trained(c10::kCPU);
  for (int card = 0; card < 8; ++card) {
    const c10::Device device("gcu:" + std::to_string(card));
    EXPECT_EQ(device.type(), c10::DeviceType::PrivateUse1);
    EXPECT_TRUE(torch::allclose(Trained(device), expected, 1e-5, 1e-6)) << device;
    fulldeck_simulator_figures figures = {};
    ASSERT_EQ(plugin.memory(card, &figures), 0);
    EXPECT_EQ(figures.held, 0u);
    EXPECT_GT(figures.peak, 0u);
    EXPECT_EQ(figures.total, 1u << 20);
  }
  std::string counts(1 << 16, '\0');
  counts.resize(plugin.counts(counts.data(), counts.size()));
  EXPECT_THAT(counts, HasSubstr(" fallback aten::addmm\n"));
  EXPECT_THAT(counts, HasSubstr(" native aten::copy_\n"));

  const c10::Device first("gcu:0");
  try {
    torch::zeros({300000}, first);
    ADD_FAILURE() << "more than the card has";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("GCU out of memory. Tried to allocate 1.14 MiB"));
  }
  const at::Tensor there = torch::ones({4}, first);
  EXPECT_ANY_THROW(there + torch::ones({4}));
  EXPECT_ANY_THROW(there + torch::ones({4}, c10::Device("gcu:1")));

  fulldeck_simulated_card* card = nullptr;
  ASSERT_EQ(fulldeck_simulated_card_open(0, &card), 0);
  fulldeck_simulated_card_set_faults(card, FULLDECK_SIMULATED_DROPPED, 1);
  try {
    there.exp();
    ADD_FAILURE() << "the card has dropped";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("gcu:0: device lost"));
  }
  fulldeck_simulated_card_set_faults(card, 0, 1);
  EXPECT_EQ(there.sum().item<float>(), 4);
  fulldeck_simulated_card_close(card);
}

}  // namespace
}  // namespace fulldeck
