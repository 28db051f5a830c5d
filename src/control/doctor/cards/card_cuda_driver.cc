#include "doctor/cards/card_cuda_driver.h"

#include <fmt/format.h>

#include "base/text.h"

namespace fulldeck::doctor {
namespace {

// Advice for errors whose message does not say what to do.
const char* Advice(int code) {
  switch (code) {
    case 46:
      return "; another process has the card for itself (compute mode exclusive)";
    case 100:
      return "; no card can be seen: CUDA_VISIBLE_DEVICES, or a container without the devices";
    case 101:
      return "; there is no card of that number under CUDA_VISIBLE_DEVICES";
    case 802:
      return "; the fabric manager of the NVSwitches is not running: systemctl start nvidia-fabricmanager";
    case 803:
      return "; the kernel module and libcuda.so are of different releases: reboot, or install the driver again";
    case 804:
      return "; a compatibility libcuda.so is in the way on a card that it is not for: take cuda-compat off "
             "LD_LIBRARY_PATH";
    case 999:
      return "; mostly device nodes or nvidia_uvm are missing: nvidia-modprobe -u, or give the container all "
             "/dev/nvidia*";
    default:
      return "";
  }
}

}  // namespace

base::Result<CudaDriver> CudaDriver::Open(const std::vector<std::string>& candidates, bool* nowhere) {
  std::string reasons;
  *nowhere = true;
  for (const std::string& candidate : candidates) {
    auto library = base::DynamicLibrary::Open(candidate);
    if (!library) {
      const std::string& reason = library.error().message;
      if (!reason.starts_with(candidate + ": cannot open shared object file: No such file")) *nowhere = false;
      reasons += (reasons.empty() ? "" : "; ") + reason;
      continue;
    }
    *nowhere = false;
    CudaDriver driver(std::move(*library));
    if (auto found = driver.LookUp(); !found) return found.error();
    return driver;
  }
  return base::Error{"libcuda.so.1 cannot be loaded: " + (reasons.empty() ? "it is nowhere" : reasons)};
}

base::Result<void> CudaDriver::LookUp() {
  std::string missing;
  const auto find = [&](auto& function, std::initializer_list<const char*> names, bool needed = true) {
    using Function = std::remove_pointer_t<std::remove_reference_t<decltype(function)>>;
    for (const char* name : names) {
      function = library_.Find<Function>(name);
      if (function != nullptr) return;
    }
    if (needed) missing += (missing.empty() ? "" : ", ") + std::string(*names.begin());
  };
  int (*init)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  find(init, {"cuInit"});
  find(driver_version, {"cuDriverGetVersion"});
  find(GetErrorString, {"cuGetErrorString"}, false);
  find(GetErrorName, {"cuGetErrorName"}, false);
  find(DeviceGetCount, {"cuDeviceGetCount"});
  find(DeviceGet, {"cuDeviceGet"});
  find(DeviceGetByPCIBusId, {"cuDeviceGetByPCIBusId"}, false);
  find(DeviceGetName, {"cuDeviceGetName"});
  find(DeviceGetUuid, {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}, false);
  find(DeviceGetAttribute, {"cuDeviceGetAttribute"});
  find(CtxCreate, {"cuCtxCreate_v2"});
  find(CtxDestroy, {"cuCtxDestroy_v2"});
  find(CtxSynchronize, {"cuCtxSynchronize"});
  find(MemGetInfo, {"cuMemGetInfo_v2"});
  find(MemAlloc, {"cuMemAlloc_v2"});
  find(MemFree, {"cuMemFree_v2"});
  find(MemAllocHost, {"cuMemAllocHost_v2"});
  find(MemFreeHost, {"cuMemFreeHost"});
  find(MemcpyHtoD, {"cuMemcpyHtoD_v2"});
  find(MemcpyDtoH, {"cuMemcpyDtoH_v2"});
  find(ModuleLoadData, {"cuModuleLoadData"});
  find(ModuleGetFunction, {"cuModuleGetFunction"});
  find(LaunchKernel, {"cuLaunchKernel"});
  if (!missing.empty()) {
    return base::Error{fmt::format("{} is not a CUDA driver that can be used: it has no {}", library_.path(), missing)};
  }
  if (const auto failure = Failure(init(0), "initialising the driver")) return base::Error{*failure};
  if (const auto failure = Failure(driver_version(&version_), "asking the driver's version"))
    return base::Error{*failure};
  return {};
}

std::optional<std::string> CudaDriver::Failure(int code, const char* what) const {
  if (code == 0) return std::nullopt;
  const char* words = nullptr;
  const char* name = nullptr;
  if (GetErrorString == nullptr || GetErrorString(code, &words) != 0 || words == nullptr)
    words = "an error without words";
  if (GetErrorName == nullptr || GetErrorName(code, &name) != 0 || name == nullptr) name = "unknown";
  return fmt::format("{}: {} ({}, code {}){}", what, base::Printable(std::string_view(words).substr(0, 200)),
                     base::Printable(std::string_view(name).substr(0, 80)), code, Advice(code));
}

std::string CudaDriver::VersionText() const {
  return fmt::format("{}.{}", version_ / 1000, version_ % 1000 / 10);
}

}  // namespace fulldeck::doctor
