// Which backend a session's process group gets, and why; and making it.
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
  std::string requested;  // empty: not
  std::string requested_by;
  c10::DeviceType type = c10::kCPU;
  std::string device;             // "gcu:3", for messages
  bool one_rank_per_card = true;  // on every rank
  std::string nccl_lacks;         // empty: NCCL can be used from C++; else why not
  std::string fulldeck_lacks;     // empty: the shared-memory backend can work; else why not
};

struct BackendChoice {
  BackendKind kind = BackendKind::kFulldeck;
  std::string reason;  // "no vendor library is reachable from C++"
};

// Pure. Throws an Error that says what is possible where what is requested for is not.
BackendChoice ChooseBackend(const BackendFacts& facts);

// Why NCCL cannot be used from C++ in this process; empty: it can. Touches nothing of CUDA unless the device is of that
// type.
std::string WhatNcclLacks(c10::DeviceType type);
// Why the shared-memory backend cannot serve so many ranks; empty: it can.
std::string WhatFulldeckLacks(int world_size);

// Meets the other ranks: all call it. `generation` counts the groups of a session; each has keys of its own in the
// store. Host tensors get a backend too, whatever the device is.
c10::intrusive_ptr<c10d::ProcessGroup> MakeGroup(const Team& team, BackendKind kind, int generation);

}  // namespace fulldeck::runtime
