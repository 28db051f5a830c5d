// Which torch device a rank computes on: maps a name as users and the launcher write it to torch's own device. Loads
// plugins (plugin.h) if the name requires one, and makes no CUDA call on a machine without such a card.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/session/session_environment.h"

namespace fulldeck::runtime {

// "gcu:3", "gcu": a type and an optional index.
struct DeviceName {
  std::string word;
  std::optional<int> index;
};
// Throws an Error if the text is not a device name.
DeviceName ParseDeviceName(std::string_view text);

// The device stacks that torch has. Vendors outside torch share one device type, with a name of their choice.
struct Stacks {
  bool cuda = false;
  bool xpu = false;
  bool xla = false;
  std::string private_name;  // "gcu", "npu", …; empty: not in use
};
Stacks RegisteredStacks();

// Pure. The device type of a name. xla and gcu are the same cards under the older and the newer stack of one vendor,
// and each name finds whichever stack is present. Nullopt: no stack for it.
std::optional<c10::DeviceType> TypeOf(std::string_view word, const Stacks& stacks);

// Whether the machine has device nodes of cards that torch calls cuda. If not, nothing of CUDA is called or loaded.
// `root`: the folder to use in place of "/".
bool HasCudaCards(const std::string& root = "");

struct DeviceRequest {
  std::string requested;  // by the program; empty: FULLDECK_DEVICE, otherwise what the machine has
  std::vector<std::string> plugins;
  const LaunchFacts* facts = nullptr;
};
struct ChosenDevice {
  c10::Device device = c10::kCPU;
  bool is_launchers = false;  // it is the device that the launcher chose, with the serial FULLDECK_CARD_SERIAL
};
// Also makes it the current device of this thread. Throws an Error that lists the devices that exist.
ChosenDevice ChooseDevice(const DeviceRequest& request);

}  // namespace fulldeck::runtime
