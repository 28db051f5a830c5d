// The c10d backend "fulldeck": the collectives of torch.distributed over shared memory on one host, and over shared
// memory and Gloo on several. This header is all that a binding or a C++ program needs; docs/torch-backend.md is for
// its users.
//
// Exceptions: as everywhere at the edge to torch, failures are thrown: c10::Error for an impossible argument,
// c10::DistBackendError with the engine's text (it names ranks) for a group that cannot be made or has failed.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What the library shows; everything else in it is hidden.
#define FULLDECK_TORCH_API __attribute__((visibility("default")))

namespace fulldeck::torch_backend {

struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;  // of this group alone: torch gives each group a prefix of its own
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout = kBackendDefaultTimeout;
  // For messages, and to know a group again: torch asks for a backend once a device type ("cpu", "cuda", …) and keeps
  // the first; while a backend of the same name, rank, size and store is alive and not shut down, that one is returned.
  // Empty: a new backend each time.
  std::string group_name;
  std::vector<std::int64_t> global_ranks;   // of the members; empty: not known, or the same as the group's
  bool check_finite = false;                // see fulldeck_group_options
  std::string profiling_name = "fulldeck";  // before the colon in "fulldeck:all_reduce", as the profiler shows it
  // For tests: stands for the host that this member is on; members with the same word meet in shared memory. Empty:
  // found out.
  std::string node_for_tests;
};

// Meets the other members, so every member must call it; blocks at most for the time-out. Threads: any. Never needs the
// interpreter's lock: a binding lets go of it first.
FULLDECK_TORCH_API c10::intrusive_ptr<c10d::Backend> MakeBackend(BackendRequest request);

// How many calls went which way since the group was made.
struct PathCounts {
  std::uint64_t local = 0;         // one host: shared memory alone
  std::uint64_t hierarchical = 0;  // several nodes: shared memory on each, Gloo between them
  std::uint64_t flat = 0;          // Gloo between all ranks
};
// Of a backend of this library; anything else is an error (c10::Error).
FULLDECK_TORCH_API PathCounts PathsOf(const c10::intrusive_ptr<c10d::Backend>& backend);
// "4 ranks on 1 host: <what the engine says>", or "8 ranks on 2 hosts, 4 on each: …": for logs and tests.
FULLDECK_TORCH_API std::string DescriptionOf(const c10::intrusive_ptr<c10d::Backend>& backend);

// The last reduction's record, where check_finite was asked for: {found, rank, element, call}
// (fulldeck_nonfinite_record).
struct NonfiniteRecord {
  bool found = false;
  int rank = -1;
  std::uint64_t element = 0;
  std::uint64_t call = 0;
};
FULLDECK_TORCH_API NonfiniteRecord NonfiniteOf(const c10::intrusive_ptr<c10d::Backend>& backend);
// The record of one all_reduce, once it is done, whatever was called after it; the same on all ranks. Nothing: nobody
// looked (not a call of this library, not an all_reduce of a dense tensor, check_finite off, or several nodes).
FULLDECK_TORCH_API std::optional<NonfiniteRecord> NonfiniteOfCall(const c10::intrusive_ptr<c10d::Work>& work);

// Ends every wait of every backend of this process, joins all their threads and leaves the groups; afterwards their
// calls fail, and none waits. For the end of a process (an atexit handler) that did not call destroy_process_group().
// May be called again, from any thread but not from one of the backend's own; must not be called with the interpreter's
// lock held.
FULLDECK_TORCH_API void ShutdownAllBackends();

// One line about what the torch that this library was built for lacks (see torch_minor.h); empty: nothing.
FULLDECK_TORCH_API std::string LackingInThisTorch();
// "2.13.0": the torch that this library was built for. Loading it with another minor is for the caller to refuse.
FULLDECK_TORCH_API const char* BuiltForTorch();

}  // namespace fulldeck::torch_backend
