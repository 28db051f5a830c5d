// The ranks that train one model together, as one of them sees it. Every part of the runtime (DataParallel,
// checkpoints, batch normalisation …) takes a Team; a Session makes one, and a program that has its own process group
// can fill one in itself.
//
// A plain value: copies refer to the same group. Threads: reading is safe from any; what is called on `group` follows
// torch's rule that all ranks call the same things in the same order.
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
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // never null; of one rank too
  c10::intrusive_ptr<c10d::Store> store;         // never null
  fulldeck_board* board = nullptr;               // null: not started by the launcher; all its calls take that
  std::chrono::milliseconds timeout = std::chrono::minutes(10);

  bool is_main() const { return rank == 0; }
};

// What follows goes through the store, not the group: a rank that is busy in a collective is seen as missing, and a
// group that failed is none the worse. Every rank calls it with the same name; the n-th call of a name meets the
// others' n-th, and the store keeps nothing of a meeting that is over. A few store messages a call, some tenths of a
// millisecond: for the start, the end of an epoch and a checkpoint, not for every step. After the time-out (default:
// the team's) it throws an Error that lists who is missing and where each of them waits instead; a meeting that failed
// so is over for good, and the job with it. Names: 1 to 100 bytes.

// Returns when every rank has come.
FULLDECK_RUNTIME_API void Barrier(const Team& team, std::string_view name,
                                  std::optional<std::chrono::milliseconds> timeout = std::nullopt);

// One text of every rank, by rank: for comparing what must be equal and for reports. Small texts (up to 64 KiB).
FULLDECK_RUNTIME_API std::vector<std::string> GatherTexts(const Team& team, std::string_view name,
                                                          const std::string& mine);

// Rank 0 does it, the others wait until it is done. What it throws comes out of rank 0's call, and as an Error with the
// same text out of everybody else's.
FULLDECK_RUNTIME_API void OnMain(const Team& team, std::string_view name, const std::function<void()>& work,
                                 std::optional<std::chrono::milliseconds> timeout = std::nullopt);
// Everybody does it, rank 0 first: for a download or a cache that the others then find ready. Where rank 0 fails, the
// others do not begin, and throw.
FULLDECK_RUNTIME_API void MainFirst(const Team& team, std::string_view name, const std::function<void()>& work,
                                    std::optional<std::chrono::milliseconds> timeout = std::nullopt);

// The mean over the ranks of a tensor with one element, for logs and decisions: the same number on all of them. Waits
// for the device. A collective on the group.
FULLDECK_RUNTIME_API double MeanOverRanks(const Team& team, const at::Tensor& value);

}  // namespace fulldeck
