#include "nodes/node_loss.h"

#include <chrono>

#include "base/clock.h"

namespace fulldeck::nodes {

std::int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

NodeFailure DescribeLoss(LossKind kind, const LossEnd& self, const LossEnd& peer, bool self_coordinates,
                         base::Duration quiet_for, const std::string& detail) {
  const LossEnd& coordinator = self_coordinates ? self : peer;
  const LossEnd& member = self_coordinates ? peer : self;
  const std::string peer_name = "host " + peer.host_name + " (" + peer.address + ")";
  // The same text at both ends.
  const std::string link = "the link between host " + coordinator.host_name + " and host " + member.host_name;
  NodeFailure failure;
  const LossEnd* named = &member;
  switch (kind) {
    case LossKind::kVanished:
      named = &peer;
      failure.summary =
          "the launcher of " + peer_name + " ended without a word: it was killed, or the machine went down";
      break;
    case LossKind::kSilent:
      failure.summary = "no word from " + peer_name + " for " + base::FormatTimeout(quiet_for) + ": " + link +
                        " is down, or host " + peer.host_name + " is";
      break;
    case LossKind::kOneWay:
      failure.summary = peer_name + " has not heard host " + self.host_name + " for " + base::FormatTimeout(quiet_for) +
                        ": " + link + " is down in one direction";
      break;
    case LossKind::kBroken:
      failure.summary = "the connection to " + peer_name + " broke (" + detail + "): " + link + " is down, or host " +
                        peer.host_name + " is";
      break;
    case LossKind::kUnintelligible:
      named = &peer;
      failure.summary = "the launcher of " + peer_name + " sent what cannot be understood: " + detail;
      break;
  }
  failure.group_rank = named->group_rank;
  failure.host_name = named->host_name;
  failure.unix_nanoseconds = UnixNanoseconds();
  return failure;
}

}  // namespace fulldeck::nodes
