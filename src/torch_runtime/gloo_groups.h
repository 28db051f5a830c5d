// torch's own Gloo backend, made from C++, for what goes between hosts.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "torch_runtime/backend.h"

namespace fulldeck::torch_runtime {

// Meets the other members through the store (every member calls it) and proves with one all_reduce that it works;
// throws where it does not. The interface is that of GLOO_SOCKET_IFNAME; without it the one on which the store's server
// is reached, and what Gloo thinks best where that is this host alone.
FULLDECK_TORCH_API c10::intrusive_ptr<c10d::Backend> MakeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                                   int rank, int size,
                                                                   std::chrono::milliseconds timeout);

}  // namespace fulldeck::torch_runtime
