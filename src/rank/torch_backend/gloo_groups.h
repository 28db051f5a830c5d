// torch's own Gloo backend, made from C++, for what goes between nodes.
#pragma once

#include <signal.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "torch_backend/backend.h"

namespace fulldeck::torch_backend {

// Gloo writes to sockets without MSG_NOSIGNAL: when a peer has just died, a C++ program, which unlike Python does not
// ignore SIGPIPE, would die of it instead of getting the error. While one of these lives, SIGPIPE is blocked in this
// thread and in the threads that it starts; a SIGPIPE that came meanwhile is dropped.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal();
  ~WithoutPipeSignal();
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t before_;
  bool was_pending_;
};

// Meets the other members through the store (every member calls it) and proves with one all_reduce that it works;
// throws where it does not. The interface is that of GLOO_SOCKET_IFNAME; without it the one on which the store's server
// is reached, and what Gloo thinks best where that is this host alone. Gloo's threads block SIGPIPE; whoever calls send
// or recv of the group, which write in the calling thread, holds a WithoutPipeSignal.
FULLDECK_TORCH_API c10::intrusive_ptr<c10d::Backend> MakeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                                   int rank, int size,
                                                                   std::chrono::milliseconds timeout);

}  // namespace fulldeck::torch_backend
