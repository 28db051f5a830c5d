// How a failure between hosts is told, and which of several was the first. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "nodes/node_group.h"

namespace fulldeck::nodes {

enum class LossKind {
  kVanished,  // the launcher's connection was closed without a word
  kSilent,    // nothing was heard for the silence limit
  kOneWay,    // it speaks, but does not hear us
  kBroken,    // the kernel gave the connection up
  kUnintelligible,
};

struct LossEnd {
  std::string host_name;
  std::string address;
  int group_rank = -1;
};

// What `self` reports of `peer`. A launcher that vanished is named itself; of a link the end that is not the
// coordinator is named, at both ends, so that both reports name the same host. `detail` is what the kernel or the
// decoder said.
NodeFailure DescribeLoss(LossKind kind, const LossEnd& self, const LossEnd& peer, bool self_coordinates,
                         base::Duration quiet_for, const std::string& detail);

std::int64_t UnixNanoseconds();

// Keeps the earliest of the failures that it is told; of two at the same time the one that it heard of first.
class FirstFailure {
 public:
  void Add(const NodeFailure& failure, base::TimePoint when) {
    by_request_ = by_request_ || failure.by_request;
    if (failure_ && when >= when_) return;
    failure_ = failure;
    when_ = when;
  }
  const std::optional<NodeFailure>& get() const { return failure_; }
  // Whether the user stopped any launcher, first or not.
  bool by_request() const { return by_request_; }

 private:
  std::optional<NodeFailure> failure_;
  base::TimePoint when_{};
  bool by_request_ = false;
};

}  // namespace fulldeck::nodes
