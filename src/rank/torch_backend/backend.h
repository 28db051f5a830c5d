// The c10d backend "fulldeck": the collectives of torch.distributed over shared memory on one node, and over shared
// memory and Gloo on several. This header is all that a binding or a C++ program needs. It declares no collectives:
// those are the methods of c10d::Backend. docs/torch-backend.md is for users.
//
// Errors are thrown, as everywhere at the boundary to torch: c10::Error for an invalid argument, c10::DistBackendError
// with the engine's text (it names ranks) if a group has failed or its creation fails.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Exported from the library; all other symbols in it are hidden.
#define FULLDECK_TORCH_API __attribute__((visibility("default")))

namespace fulldeck::torch_backend {

struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;  // of this group only: torch gives each group its own prefix
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout = kBackendDefaultTimeout;
  // For messages, and to recognize a group: torch requests a backend once per device type ("cpu", "cuda", …) and keeps
  // the first. While a backend of the same name, rank, size and store is alive and not shut down, that one is returned.
  // Empty: a new backend each time.
  std::string group_name;
  std::vector<std::int64_t> global_ranks;   // of the members; empty: unknown, or the same as the group's
  bool check_finite = false;                // see fulldeck_group_options
  std::string profiling_name = "fulldeck";  // the part before the colon in "fulldeck:all_reduce", as the profiler shows
                                            // it
  // For tests: replaces the identity of this member's node; members with equal strings share memory. Empty: detected.
  std::string node_for_tests;
};

// Rendezvous with the other members, so every member must call it; blocks at most for the timeout. Any thread. Never
// needs the GIL: a binding releases it first.
FULLDECK_TORCH_API c10::intrusive_ptr<c10d::Backend> MakeBackend(BackendRequest request);

// Number of calls per route since the group was created.
struct PathCounts {
  std::uint64_t local = 0;         // one node: shared memory only
  std::uint64_t hierarchical = 0;  // several nodes: shared memory on each, Gloo between them
  std::uint64_t flat = 0;          // Gloo between all ranks
};
// Of a backend of this library; anything else is an error (c10::Error).
FULLDECK_TORCH_API PathCounts PathsOf(const c10::intrusive_ptr<c10d::Backend>& backend);
// "4 ranks on 1 host: <text of the engine>", or "8 ranks on 2 hosts, 4 on each: …": for logs and tests.
FULLDECK_TORCH_API std::string DescriptionOf(const c10::intrusive_ptr<c10d::Backend>& backend);

// The last reduction's record if check_finite is on: {found, rank, element, call} (fulldeck_nonfinite_record).
struct NonfiniteRecord {
  bool found = false;
  int rank = -1;
  std::uint64_t element = 0;
  std::uint64_t call = 0;
};
FULLDECK_TORCH_API NonfiniteRecord NonfiniteOf(const c10::intrusive_ptr<c10d::Backend>& backend);
// The record of one completed all_reduce, whatever was called after it; the same on all ranks. Nullopt if it was not
// checked (not a call of this library, not an all_reduce of a dense tensor, check_finite off, or several nodes).
FULLDECK_TORCH_API std::optional<NonfiniteRecord> NonfiniteOfCall(const c10::intrusive_ptr<c10d::Work>& work);

// Ends every wait of every backend of this process, joins all their threads and leaves the groups. Later calls on them
// fail without blocking. For the end of a process (an atexit handler) that did not call destroy_process_group(). May be
// called again, from any thread except a backend's own. Do not hold the GIL.
FULLDECK_TORCH_API void ShutdownAllBackends();

// One line about what is missing in the torch that this library was built for (see torch_minor.h); empty: nothing.
FULLDECK_TORCH_API std::string LackingInThisTorch();
// "2.13.0": the torch that this library was built for. The caller must refuse to load it with another minor version.
FULLDECK_TORCH_API const char* BuiltForTorch();

}  // namespace fulldeck::torch_backend
