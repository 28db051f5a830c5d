#include "runtime/cards/backend_choice.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <cstdlib>

#include "base/text.h"
#include "fulldeck/error.h"
#include "runtime/cards/nccl_library.h"
#include "torch_backend/backend.h"
#include "torch_backend/gloo_groups.h"

namespace fulldeck::runtime {
namespace {

constexpr int kMaxRanksOfFulldeck = 256;

c10::intrusive_ptr<c10d::Backend> MakeFulldeck(const Team& team, const c10::intrusive_ptr<c10d::Store>& store,
                                               const std::string& name) {
  // DDP's Reducer then requests its buckets from the backend, which allocates them in shared memory. The variable also
  // affects NCCL's allocations, so it is not set earlier than here. A value set by the user is kept.
  setenv("DDP_DISABLE_COMM_MEM", "0", 0);
  torch_backend::BackendRequest request;
  request.store = store;
  request.rank = team.rank;
  request.size = team.world_size;
  request.timeout = team.timeout;
  request.group_name = name;
  request.check_finite = true;
  return torch_backend::MakeBackend(std::move(request));
}

std::string Possible(const BackendFacts& facts) {
  std::string text;
  if (facts.nccl_lacks.empty() && facts.one_rank_per_card) text += "nccl, ";
  if (facts.fulldeck_lacks.empty()) text += "fulldeck, ";
  if (facts.type == c10::kCPU || facts.type == c10::kCUDA) text += "gloo, ";
  if (text.empty()) return "none";
  return text.substr(0, text.size() - 2);
}

}  // namespace

const char* NameOf(BackendKind kind) {
  switch (kind) {
    case BackendKind::kNccl:
      return "nccl";
    case BackendKind::kFulldeck:
      return "fulldeck";
    case BackendKind::kGloo:
      return "gloo";
  }
  return "?";
}

BackendChoice ChooseBackend(const BackendFacts& facts) {
  const bool gloo_knows_device = facts.type == c10::kCPU || facts.type == c10::kCUDA;
  const std::string nccl_lacks = !facts.nccl_lacks.empty() ? facts.nccl_lacks
                                 : facts.one_rank_per_card ? ""
                                                           : "several ranks share a card";
  if (!facts.requested.empty()) {
    std::string why_not;
    BackendKind kind = BackendKind::kFulldeck;
    if (facts.requested == "nccl") {
      kind = BackendKind::kNccl;
      why_not = nccl_lacks;
    } else if (facts.requested == "fulldeck") {
      why_not = facts.fulldeck_lacks;
    } else if (facts.requested == "gloo") {
      kind = BackendKind::kGloo;
      if (!gloo_knows_device) why_not = "Gloo moves tensors of cpu and cuda only";
    } else {
      why_not = "there is no backend of that name";
    }
    if (!why_not.empty()) {
      throw Error("the backend \"" + base::Printable(facts.requested.substr(0, 40)) + "\", asked for by " +
                  facts.requested_by + ", cannot work on " + facts.device + ": " + why_not +
                  ". Possible here: " + Possible(facts) + ".");
    }
    return {kind, "asked for by " + facts.requested_by};
  }
  if (nccl_lacks.empty()) return {BackendKind::kNccl, "one rank a card"};
  if (facts.fulldeck_lacks.empty()) {
    if (facts.type == c10::kCPU) return {BackendKind::kFulldeck, "the ranks compute on processors"};
    if (facts.type == c10::kCUDA) return {BackendKind::kFulldeck, nccl_lacks};
    return {BackendKind::kFulldeck, "no vendor library is reachable from C++"};
  }
  if (gloo_knows_device) return {BackendKind::kGloo, facts.fulldeck_lacks};
  throw Error("no backend can work on " + facts.device + ": fulldeck: " + facts.fulldeck_lacks +
              "; gloo moves tensors of cpu and cuda only; nccl: " + nccl_lacks + ".");
}

std::string WhatNcclLacks(c10::DeviceType type) {
  if (type != c10::kCUDA) return "NCCL moves tensors of cuda only";
  return WhyNoNcclLibrary();
}

std::string WhatFulldeckLacks(int world_size) {
  if (world_size <= kMaxRanksOfFulldeck) return {};
  return "it serves up to " + std::to_string(kMaxRanksOfFulldeck) + " ranks, and there are " +
         std::to_string(world_size);
}

c10::intrusive_ptr<c10d::ProcessGroup> MakeGroup(const Team& team, BackendKind kind, int generation) {
  const std::string name = generation == 0 ? "training" : "training." + std::to_string(generation);
  const auto store =
      c10::make_intrusive<c10d::PrefixStore>("group_" + std::to_string(generation) + "_" + NameOf(kind), team.store);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, team.rank, team.world_size);
  using Type = c10d::ProcessGroup::BackendType;
  switch (kind) {
    case BackendKind::kNccl: {
      group->setBackend(team.device.type(), Type::NCCL,
                        MakeNccl({store, team.rank, team.world_size, team.device, team.timeout}));
      const auto host = torch_backend::MakeGlooGroup(c10::make_intrusive<c10d::PrefixStore>("host", store), team.rank,
                                                     team.world_size, team.timeout);
      group->setBackend(c10::kCPU, Type::GLOO, host);
      group->setDefaultBackend(Type::NCCL);
      break;
    }
    case BackendKind::kFulldeck: {
      const auto backend = MakeFulldeck(team, store, name);
      group->setBackend(c10::kCPU, Type::CUSTOM, backend);
      if (!team.device.is_cpu()) group->setBackend(team.device.type(), Type::CUSTOM, backend);
      group->setDefaultBackend(Type::CUSTOM);
      break;
    }
    case BackendKind::kGloo: {
      const auto backend = torch_backend::MakeGlooGroup(store, team.rank, team.world_size, team.timeout);
      group->setBackend(c10::kCPU, Type::GLOO, backend);
      if (!team.device.is_cpu()) group->setBackend(team.device.type(), Type::GLOO, backend);
      group->setDefaultBackend(Type::GLOO);
      break;
    }
  }
  group->setGroupName(name);
  return group;
}

}  // namespace fulldeck::runtime
