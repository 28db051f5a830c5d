#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "base/text.h"
#include "fulldeck/data_parallel.h"
#include "runtime/data_parallel/data_parallel_wrap.h"

namespace fulldeck {
namespace {

using runtime::DeviceName;
using runtime::ShapeText;

constexpr std::size_t kShown = 5;
constexpr std::size_t kMaxValue = 120;

// The variables that decide which card a rank gets.
constexpr const char* kVariables[] = {
    "RANK",         "LOCAL_RANK",           "WORLD_SIZE",           "LOCAL_WORLD_SIZE",          "MASTER_ADDR",
    "MASTER_PORT",  "CUDA_VISIBLE_DEVICES", "TOPS_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ECCL_BACKEND", "ECCL_DEVICE_TYPE",     "FULLDECK_SIMULATE"};

bool SameDevice(const c10::Device& device, const c10::Device& wanted) {
  return device.type() == wanted.type() && (device.index() == wanted.index() || !wanted.has_index());
}

struct Placement {
  struct Parameter {
    std::string name;
    c10::Device device;
    std::string shape;
  };
  std::vector<Parameter> first;
  std::size_t parameters = 0;
  std::int64_t elements = 0;
  std::map<std::string, std::size_t> by_device;
  std::set<c10::DeviceType> types;
  std::size_t elsewhere = 0;
  std::size_t on_host = 0;
  std::size_t buffers_elsewhere = 0;
  std::size_t buffers = 0;
};

Placement PlacementOf(const torch::nn::Module& module, const c10::Device& wanted) {
  Placement placement;
  placement.types.insert(wanted.type());
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined()) continue;
    if (placement.first.size() < kShown)
      placement.first.push_back({base::Printable(item.key()), tensor.device(), ShapeText(tensor.sizes())});
    ++placement.parameters;
    placement.elements += tensor.numel();
    ++placement.by_device[DeviceName(tensor.device())];
    placement.types.insert(tensor.device().type());
    if (!SameDevice(tensor.device(), wanted)) ++placement.elsewhere;
    if (tensor.device().is_cpu()) ++placement.on_host;
  }
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined()) continue;
    ++placement.buffers;
    if (!SameDevice(item.value().device(), wanted)) ++placement.buffers_elsewhere;
  }
  return placement;
}

std::string CountsText(const Placement& placement) {
  std::string text;
  for (const auto& [device, count] : placement.by_device)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " on " + device;
  return text.empty() ? "none" : text;
}

// The current device of each type that the module or the rank uses. Others are not queried, so that no unused library
// is initialized.
std::string CurrentDevices(const std::set<c10::DeviceType>& types) {
  std::string text;
  for (const c10::DeviceType type : types) {
    if (type == c10::DeviceType::CPU || !c10::impl::hasDeviceGuardImpl(type)) continue;
    const auto* const guard = c10::impl::getDeviceGuardImpl(type);
    try {
      if (guard->deviceCount() == 0) continue;
      text += (text.empty() ? "" : ", ") + DeviceName(guard->getDevice());
    } catch (const std::exception&) {
      text += (text.empty() ? "" : ", ") + DeviceName(c10::Device(type)) + " cannot be asked";
    }
  }
  return text.empty() ? "cpu alone" : text;
}

std::string Environment() {
  std::string text;
  for (const char* const name : kVariables) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    text +=
        (text.empty() ? "" : " ") + std::string(name) + "=" + base::Printable(std::string(value).substr(0, kMaxValue));
  }
  return text.empty() ? "none of the variables that place a rank is set" : text;
}

std::string Verdict(const Placement& placement, const Team& team) {
  const std::string wanted = DeviceName(team.device);
  if (placement.parameters == 0) return "no parameters: nothing can be trained.";
  if (placement.elsewhere == 0 && placement.buffers_elsewhere == 0) {
    return "case A: the device is right (" + wanted +
           "). If wrapping or training still fails, the module is not the cause: look at the backend (is it made for " +
           wanted + "?), at the batch, and at the library of the card's vendor.";
  }
  if (placement.elsewhere == 0)
    return "the parameters are on " + wanted + ", but " + std::to_string(placement.buffers_elsewhere) + " of " +
           std::to_string(placement.buffers) + " buffers are not. Cure: module->to(team.device) moves both.";
  if (placement.on_host == placement.parameters) {
    return "case B: the module is still on the CPU, and this rank trains on " + wanted +
           ". Cure: module->to(team.device) before it is wrapped, and before the optimizer is made.";
  }
  if (placement.by_device.size() > 1)
    return "case B: the module is spread over " + std::to_string(placement.by_device.size()) +
           " devices, and this rank trains on " + wanted +
           ". Cure: module->to(team.device) before it is wrapped; look for parameters that are made after it was "
           "moved.";
  return "the module is on another card than this rank's " + wanted +
         ". Cure: module->to(team.device); look for a device that is written into the program instead of taken from "
         "the "
         "rank.";
}

}  // namespace

std::string PlacementReport(const torch::nn::Module& module, const Team& team) {
  std::ostringstream out;
  try {
    const Placement placement = PlacementOf(module, team.device);
    std::string of_module = "–";
    if (placement.by_device.size() == 1) of_module = placement.by_device.begin()->first;
    if (placement.by_device.size() > 1) of_module = std::to_string(placement.by_device.size()) + " devices";
    out << "placement of " << base::Printable(module.name()) << " on rank " << team.rank << " of " << team.world_size
        << " (local rank " << team.local_rank << "):\n"
        << "  wanted            " << DeviceName(team.device) << "\n"
        << "  module            " << of_module << "\n"
        << "  first parameter   " << (placement.first.empty() ? "–" : DeviceName(placement.first[0].device)) << "\n"
        << "  current devices   " << CurrentDevices(placement.types) << "\n"
        << "  parameters        " << placement.parameters << " (" << placement.elements
        << " elements): " << CountsText(placement) << "\n";
    for (const auto& parameter : placement.first)
      out << "    " << parameter.name << "  " << DeviceName(parameter.device) << "  " << parameter.shape << "\n";
    if (placement.parameters > placement.first.size())
      out << "    … and " << placement.parameters - placement.first.size() << " more\n";
    out << "  environment       " << Environment() << "\n"
        << "  verdict           " << Verdict(placement, team);
  } catch (const std::exception& error) {
    out << "\n  the report could not be finished: " << base::Printable(error.what());
  }
  return out.str();
}

namespace runtime {

std::string MisplacedReason(const torch::nn::Module& module, const Team& team) {
  const Placement placement = PlacementOf(module, team.device);
  const std::string wanted = DeviceName(team.device);
  if (placement.elsewhere > 0)
    return std::to_string(placement.elsewhere) + " of " + std::to_string(placement.parameters) +
           " parameters are not on " + wanted + ", the device of rank " + std::to_string(team.rank) + ".";
  if (placement.buffers_elsewhere > 0)
    return std::to_string(placement.buffers_elsewhere) + " of " + std::to_string(placement.buffers) +
           " buffers are not on " + wanted + ", the device of rank " + std::to_string(team.rank) + ".";
  if (TrainedParameters(module).parameters.empty())
    return "no parameter of the module needs a gradient: there is nothing to train.";
  return {};
}

}  // namespace runtime

void CheckBatch(const std::vector<at::Tensor>& batch, const c10::Device& device) {
  std::string elsewhere;
  std::size_t count = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const at::Tensor& tensor = batch[i];
    if (!tensor.defined() || SameDevice(tensor.device(), device)) continue;
    if (tensor.device().is_cpu() && tensor.dim() == 0) continue;
    if (++count <= kShown) {
      elsewhere += (elsewhere.empty() ? "" : "; ") + ("number " + std::to_string(i + 1)) + " is on " +
                   DeviceName(tensor.device()) + " " + ShapeText(tensor.sizes());
    }
  }
  if (count == 0) return;
  throw Refusal(std::to_string(count) + " of " + std::to_string(batch.size()) +
                " tensors of the batch are not on this rank's device " + DeviceName(device) + ": " + elsewhere +
                (count > kShown ? "; …" : "") + ". Move the whole batch with .to(team.device) first.");
}

}  // namespace fulldeck
