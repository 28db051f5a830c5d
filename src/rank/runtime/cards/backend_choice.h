// Chooses the backend of a session's process group, with the reason, and creates the group.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <string>

#include "fulldeck/team.h"

namespace fulldeck::runtime {

enum class BackendKind { kNccl, kFulldeck, kGloo };
const char* NameOf(BackendKind kind);

struct BackendFacts {
  std::string requested;  // empty: no request
  std::string requested_by;
  c10::DeviceType type = c10::kCPU;
  std::string device;             // "gcu:3", for messages
  bool one_rank_per_card = true;  // on every rank
  std::string nccl_lacks;         // empty: NCCL can be used from C++; otherwise why not
  std::string fulldeck_lacks;     // empty: the shared-memory backend can be used; otherwise why not
};

struct BackendChoice {
  BackendKind kind = BackendKind::kFulldeck;
  std::string reason;  // "no vendor library is reachable from C++"
};

// Pure. If the requested backend cannot be used, throws an Error that lists the possible ones.
BackendChoice ChooseBackend(const BackendFacts& facts);

// Why NCCL cannot be used from C++ in this process; empty: it can. Does not touch CUDA unless the device is of that
// type.
std::string WhatNcclLacks(c10::DeviceType type);
// Why the shared-memory backend cannot serve this number of ranks; empty: it can.
std::string WhatFulldeckLacks(int world_size);

// Rendezvous with the other ranks: all of them call it. `generation` counts the groups of a session; each uses its own
// keys in the store. CPU tensors get a backend too, whatever the device is.
c10::intrusive_ptr<c10d::ProcessGroup> MakeGroup(const Team& team, BackendKind kind, int generation);

}  // namespace fulldeck::runtime
