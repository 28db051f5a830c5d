// Which torch device a rank computes on: a name as people and the launcher write it, mapped to what this torch calls
// it. Loads plugins (plugin.h) where the name needs one, and asks CUDA nothing on a machine that has no such card.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/session/session_environment.h"

namespace fulldeck::runtime {

// "gcu:3", "gcu": a word and perhaps a number.
struct DeviceName {
  std::string word;
  std::optional<int> index;
};
// Throws an Error for what is no name of a device.
DeviceName ParseDeviceName(std::string_view text);

// What of torch's devices is there. Vendors outside torch share one place in it, under a name of their choice.
struct Stacks {
  bool cuda = false;
  bool xpu = false;
  bool xla = false;
  std::string private_name;  // "gcu", "npu", …; empty: nobody has taken the place
};
Stacks RegisteredStacks();

// Pure. The type that a word means: xla and gcu are the same cards under the older and the newer stack of one vendor,
// and each word finds whichever of the two is there. Nothing: no stack for it is.
std::optional<c10::DeviceType> TypeOf(std::string_view word, const Stacks& stacks);

// Device nodes of cards that torch calls cuda. Where there are none, nothing of CUDA is called or loaded. `root`: the
// folder that stands for "/".
bool HasCudaCards(const std::string& root = "");

struct DeviceRequest {
  std::string requested;  // by the program; empty: FULLDECK_DEVICE, else what the machine has
  std::vector<std::string> plugins;
  const LaunchFacts* facts = nullptr;
};
struct ChosenDevice {
  c10::Device device = c10::kCPU;
  bool is_launchers = false;  // the one that the launcher chose: FULLDECK_CARD_SERIAL is its serial
};
// Also makes it the current device of this thread. Throws an Error that says what is there instead.
ChosenDevice ChooseDevice(const DeviceRequest& request);

}  // namespace fulldeck::runtime
