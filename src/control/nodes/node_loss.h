// How a failure between nodes is described, and which of several failures came first. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "nodes/node_group.h"

namespace fulldeck::nodes {

enum class LossKind {
  kVanished,  // the launcher's connection closed without a final message
  kSilent,    // nothing was heard for the silence limit
  kOneWay,    // it sends, but does not receive our messages
  kBroken,    // the kernel gave up on the connection
  kUnintelligible,
};

struct LossEnd {
  std::string host_name;
  std::string address;
  int group_rank = -1;
};

// What `self` reports about `peer`. If a launcher vanished, that launcher is named. If a link failed, the end that is
// not the coordinator is named, at both ends, so that both reports name the same node. `detail` is the error text of
// the kernel or the decoder.
NodeFailure DescribeLoss(LossKind kind, const LossEnd& self, const LossEnd& peer, bool self_coordinates,
                         base::Duration quiet_for, const std::string& detail);

std::int64_t UnixNanoseconds();

// Keeps the earliest of the failures that are added; of two with the same time, the one added first.
class FirstFailure {
 public:
  void Add(const NodeFailure& failure, base::TimePoint when) {
    by_request_ = by_request_ || failure.by_request;
    if (failure_ && when >= when_) return;
    failure_ = failure;
    when_ = when;
  }
  const std::optional<NodeFailure>& get() const { return failure_; }
  // Whether the user stopped any launcher, even if that was not the first failure.
  bool by_request() const { return by_request_; }

 private:
  std::optional<NodeFailure> failure_;
  base::TimePoint when_{};
  bool by_request_ = false;
};

}  // namespace fulldeck::nodes
