// torch's NCCL backend from C++: lib/libfulldeck_nccl.so. It is built if torch has CUDA and the headers of CUDA and
// NCCL are installed, and is loaded on first use.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace fulldeck::runtime {

struct NcclRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  c10::Device device = c10::kCPU;  // this rank's
  std::chrono::milliseconds timeout{0};
};

// Why the library is not available; empty: it is loaded.
std::string WhyNoNcclLibrary();

// Rendezvous with the other ranks. Call it only if WhyNoNcclLibrary returned an empty string. Throws what NCCL or torch
// throw.
c10::intrusive_ptr<c10d::Backend> MakeNccl(const NcclRequest& request);

}  // namespace fulldeck::runtime
