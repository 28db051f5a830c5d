// torch's own Gloo backend, created from C++, for the traffic between nodes.
#pragma once

#include <signal.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "torch_backend/backend.h"

namespace fulldeck::torch_backend {

// Gloo writes to sockets without MSG_NOSIGNAL: when a peer has just died, a C++ program (which, unlike Python, does not
// ignore SIGPIPE) would be killed instead of getting the error. While an instance lives, SIGPIPE is blocked in this
// thread and in threads that it starts; a SIGPIPE that arrives in that time is dropped.
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

// Rendezvous of the members through the store (every member calls it), checked with one all_reduce; throws if that
// fails. The network interface is GLOO_SOCKET_IFNAME if set; otherwise the one on the route to the store's server, or
// Gloo's default if the server is on this node. Gloo's threads block SIGPIPE. Callers of the group's send or recv,
// which write in the calling thread, must hold a WithoutPipeSignal.
FULLDECK_TORCH_API c10::intrusive_ptr<c10d::Backend> MakeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                                   int rank, int size,
                                                                   std::chrono::milliseconds timeout);

}  // namespace fulldeck::torch_backend
