// The store for the rendezvous of the ranks: rank 0's process serves it at MASTER_ADDR and MASTER_PORT, only on
// loopback if all ranks are on one node. A single rank needs no server and starts none.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "runtime/session/session_environment.h"

namespace fulldeck::runtime {

// Keys begin with the attempt's number, so that a store that outlives an attempt does no harm. Throws an Error if the
// port is taken, or rank 0 does not listen in time.
c10::intrusive_ptr<c10d::Store> OpenStore(const LaunchFacts& facts, std::chrono::milliseconds timeout);

// Another connection to the same server, for another thread, because a wait occupies its connection. Returns the same
// store if there is no server.
c10::intrusive_ptr<c10d::Store> SecondConnection(const LaunchFacts& facts, const c10::intrusive_ptr<c10d::Store>& store,
                                                 std::chrono::milliseconds timeout);

}  // namespace fulldeck::runtime
