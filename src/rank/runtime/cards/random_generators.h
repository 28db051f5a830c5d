// Torch's own generators: only those of the CPU and of one device. at::manual_seed queries every accelerator that torch
// was built for, which on a machine without a driver is a useless call into CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace fulldeck::runtime {

void SeedGenerators(c10::Device device, std::uint64_t seed);

// The states of both, for restoring later; a device without a generator has none.
std::vector<at::Tensor> GeneratorStates(c10::Device device);
void RestoreGenerators(c10::Device device, const std::vector<at::Tensor>& states);

}  // namespace fulldeck::runtime
