// Torch's own generators: those of the host and of one device, and no others. at::manual_seed asks every accelerator
// that torch was built for, which on a machine without a driver is a call into CUDA for nothing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace fulldeck::runtime {

void SeedGenerators(c10::Device device, std::uint64_t seed);

// States of the two, to be put back later; a device without a generator has none.
std::vector<at::Tensor> GeneratorStates(c10::Device device);
void RestoreGenerators(c10::Device device, const std::vector<at::Tensor>& states);

}  // namespace fulldeck::runtime
