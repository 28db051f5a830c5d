// Everything in the simulator that differs between the torch minor versions that it can be built for: 2.11 to 2.13. No
// other file here depends on the version.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/version.h>

#define FULLDECK_SIMULATOR_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !FULLDECK_SIMULATOR_TORCH_AT_LEAST(2, 9)
#error "fulldeck's simulated cards need torch 2.9 or newer."
#endif
