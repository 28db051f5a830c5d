#include "runtime/cards/device_choice.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include "base/text.h"
#include "fulldeck/error.h"
#include "runtime/cards/plugin.h"
#include "wire/variables.h"

namespace fulldeck::runtime {
namespace {

constexpr int kMaxDevices = 128;  // c10::DeviceIndex has eight bits

bool IsWord(std::string_view text) {
  if (text.empty() || text.size() > 20) return false;
  for (const char letter : text) {
    if (!(letter >= 'a' && letter <= 'z') && !(letter >= '0' && letter <= '9') && letter != '_') return false;
  }
  return text.front() >= 'a';
}

std::string WhatIsThere(const Stacks& stacks) {
  std::string text = "cpu";
  if (stacks.cuda) text += ", cuda";
  if (stacks.xpu) text += ", xpu";
  if (stacks.xla) text += ", xla";
  if (!stacks.private_name.empty()) text += ", " + base::Printable(stacks.private_name);
  return text;
}

void LoadPlugins(const DeviceRequest& request, std::string_view word) {
  std::vector<std::string> plugins = request.plugins;
  plugins.insert(plugins.end(), request.facts->torch_plugins.begin(), request.facts->torch_plugins.end());
  if (plugins.empty() && request.facts->simulated && word != "cuda") plugins.push_back(SimulatedCardsPlugin());
  for (const std::string& plugin : plugins) LoadTorchPlugin(plugin);
}

// "cuda" was requested but torch has no stack for it: in a program other than Python, torch's CUDA library may not be
// loaded yet.
void LoadCuda(const std::string& name) {
  if (!HasCudaCards()) {
    throw Error(
        "the device " + name +
        " is asked for, and this machine has no card that torch calls cuda: there is no /dev/nvidia*, /dev/kfd, "
        "/dev/mxcd or /dev/dxg. See fulldeck devices for what it has.");
  }
  std::string reason;
  if (!LoadLibraryOfTorch("libtorch_cuda.so", &reason) && !LoadLibraryOfTorch("libtorch_hip.so", &reason)) {
    throw Error("the device " + name + " is asked for, and this torch is built without CUDA (" + reason +
                "). Build against a torch that has it, or compute on cpu.");
  }
}

// Without a request a program uses a card only if torch already has a stack for it.
std::string DefaultName(const DeviceRequest& request) {
  // If a vendor's library is configured, its cards are wanted.
  if (!request.plugins.empty() || !request.facts->torch_plugins.empty()) {
    LoadPlugins(request, "");
    const std::string name = RegisteredStacks().private_name;
    if (!name.empty() && c10::impl::VirtualGuardImpl(c10::kPrivateUse1).deviceCount() > 0) return name;
  }
  if (!HasCudaCards()) return "cpu";
  std::string reason;
  if (!RegisteredStacks().cuda && !LoadLibraryOfTorch("libtorch_cuda.so", &reason) &&
      !LoadLibraryOfTorch("libtorch_hip.so", &reason)) {
    return "cpu";
  }
  const auto* cuda = c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)].load();
  return cuda != nullptr && cuda->deviceCount() > 0 ? "cuda" : "cpu";
}

}  // namespace

DeviceName ParseDeviceName(std::string_view text) {
  const auto colon = text.find(':');
  DeviceName name;
  name.word = std::string(text.substr(0, colon));
  bool valid = IsWord(name.word);
  if (valid && colon != std::string_view::npos) {
    name.index = base::ParseInteger<int>(text.substr(colon + 1));
    valid = name.index && *name.index >= 0 && *name.index < kMaxDevices;
  }
  if (!valid) {
    throw Error("\"" + base::Printable(text.substr(0, 80)) +
                "\" is no name of a device. Names are like cpu, cuda:0, gcu:3, npu:1; without a number it is the "
                "launcher's choice of that kind, else the local rank.");
  }
  return name;
}

Stacks RegisteredStacks() {
  Stacks stacks;
  stacks.cuda = c10::impl::hasDeviceGuardImpl(c10::kCUDA);
  stacks.xpu = c10::impl::hasDeviceGuardImpl(c10::kXPU);
  stacks.xla = c10::impl::hasDeviceGuardImpl(c10::kXLA);
  if (c10::is_privateuse1_backend_registered() && c10::impl::hasDeviceGuardImpl(c10::kPrivateUse1)) {
    stacks.private_name = c10::get_privateuse1_backend(true);
  }
  return stacks;
}

std::optional<c10::DeviceType> TypeOf(std::string_view word, const Stacks& stacks) {
  if (word == "cpu") return c10::kCPU;
  if (word == "cuda") return stacks.cuda ? std::optional(c10::kCUDA) : std::nullopt;
  if (word == "xpu") return stacks.xpu ? std::optional(c10::kXPU) : std::nullopt;
  if (!stacks.private_name.empty() && word == stacks.private_name) return c10::kPrivateUse1;
  if (word == "xla" || word == "gcu") {
    if (stacks.xla) return c10::kXLA;
    if (stacks.private_name == "gcu") return c10::kPrivateUse1;
  }
  return std::nullopt;
}

bool HasCudaCards(const std::string& root) {
  for (const char* node : {"/dev/nvidiactl", "/dev/kfd", "/dev/mxcd", "/dev/dxg"}) {
    if (access((root + node).c_str(), F_OK) == 0) return true;
  }
  return false;
}

ChosenDevice ChooseDevice(const DeviceRequest& request) {
  const LaunchFacts& facts = *request.facts;
  ChosenDevice chosen;
  std::string requested = request.requested;
  std::string by = "by the program";
  if (requested.empty() && !facts.device.empty()) {
    requested = facts.device;
    by.assign("by ").append(wire::kDeviceVariable);
  } else if (requested.empty()) {
    requested = DefaultName(request);
  }
  const DeviceName name = ParseDeviceName(requested);
  if (name.word == "cpu") return chosen;

  auto type = TypeOf(name.word, RegisteredStacks());
  if (!type) LoadPlugins(request, name.word);
  if (!type) type = TypeOf(name.word, RegisteredStacks());
  if (!type && name.word == "cuda") {
    LoadCuda(requested);
    type = TypeOf(name.word, RegisteredStacks());
  }
  if (!type) {
    throw Error("the device " + requested + " is asked for " + by +
                ", and nobody has taught torch that name; it knows " + WhatIsThere(RegisteredStacks()) +
                ". Name the vendor's library in " + wire::kTorchPluginVariable + ".");
  }
  std::optional<int> launchers_index;
  if (!facts.device.empty()) {
    const DeviceName given = ParseDeviceName(facts.device);
    if (TypeOf(given.word, RegisteredStacks()) == type) launchers_index = given.index.value_or(facts.local_rank);
  }
  const auto index = static_cast<c10::DeviceIndex>(name.index.value_or(launchers_index.value_or(facts.local_rank)));
  const c10::impl::VirtualGuardImpl guard(*type);
  const int count = guard.deviceCount();
  chosen.device = c10::Device(*type, index);
  if (index >= count) {
    throw Error("the device " + chosen.device.str() + " is asked for " + by + ", and torch sees " +
                std::to_string(count) + " of them (numbers from 0). Start fewer ranks, or make more cards visible.");
  }
  guard.setDevice(chosen.device);
  chosen.is_launchers = launchers_index == index;
  return chosen;
}

}  // namespace fulldeck::runtime
