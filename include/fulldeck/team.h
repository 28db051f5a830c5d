// The ranks that train one model together, as seen by one of them. Every part of the runtime (DataParallel,
// checkpoints, batch normalization …) takes a Team. A Session creates one; a program that has its own process group can
// fill one in itself.
//
// A plain value: copies refer to the same group. Threads: reading is safe from any thread; calls on `group` follow
// torch's rule that all ranks make the same calls in the same order.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/rank_board.h"

namespace fulldeck {

struct Team {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  c10::Device device = c10::kCPU;
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // never null, even for one rank
  c10::intrusive_ptr<c10d::Store> store;         // never null
  fulldeck_board* board = nullptr;               // null: not started by the launcher; the board's functions accept null
  std::chrono::milliseconds timeout = std::chrono::minutes(10);

  bool is_main() const { return rank == 0; }
};

// The functions below use the store, not the group, so they report a rank that is busy in a collective as missing, and
// also work after the group has failed. Every rank passes the same name; the n-th call with a name matches the others'
// n-th. The store keeps nothing of a completed call. Each call takes a few store messages, some tenths of a
// millisecond: use them at the start, at the end of an epoch and for a checkpoint, not in every step. After the timeout
// (default: the team's) a call throws an Error that lists which ranks are missing and where each of them waits instead.
// A call that timed out cannot be repeated: the job has failed. Names: 1 to 100 bytes.

// Returns when every rank has arrived.
FULLDECK_RUNTIME_API void Barrier(const Team& team, std::string_view name,
                                  std::optional<std::chrono::milliseconds> timeout = std::nullopt);

// Returns one string per rank, indexed by rank: for comparing what must be equal and for reports. Up to 64 KiB each.
FULLDECK_RUNTIME_API std::vector<std::string> GatherTexts(const Team& team, std::string_view name,
                                                          const std::string& mine);

// Rank 0 runs `work`, the others wait until it is done. Its exception is rethrown on rank 0, and thrown as an Error
// with the same text on all other ranks.
FULLDECK_RUNTIME_API void OnMain(const Team& team, std::string_view name, const std::function<void()>& work,
                                 std::optional<std::chrono::milliseconds> timeout = std::nullopt);
// Every rank runs `work`, rank 0 first: for a download or a cache that the others then find ready. If rank 0 fails, the
// others do not begin, and throw.
FULLDECK_RUNTIME_API void MainFirst(const Team& team, std::string_view name, const std::function<void()>& work,
                                    std::optional<std::chrono::milliseconds> timeout = std::nullopt);

// The mean over the ranks of a tensor with one element, for logs and decisions: the same number on all ranks. Waits for
// the device. A collective on the group.
FULLDECK_RUNTIME_API double MeanOverRanks(const Team& team, const at::Tensor& value);

}  // namespace fulldeck
