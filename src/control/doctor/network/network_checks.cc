#include "doctor/network/network_checks.h"

namespace fulldeck::doctor {
namespace {

// Named peers are contacted one after the other.
constexpr base::Duration kPeerLimit = std::chrono::seconds(60);

}  // namespace

std::vector<Check> NetworkChecks() {
  return {
      {"loopback", Group::kNetwork, CheckLoopback},
      {"interface", Group::kNetwork, CheckInterface},
      {"interface-variables", Group::kNetwork, CheckInterfaceVariables},
      {"host-name", Group::kNetwork, CheckHostName},
      {"master-port", Group::kNetwork, CheckMasterPort},
      {"card-links", Group::kNetwork, CheckCardLinks},
      {"peer-to-peer", Group::kNetwork, CheckPeerToPeer},
      {"peer-reach", Group::kNetwork, CheckPeerReach, false, kPeerLimit},
      {"peer-mtu", Group::kNetwork, CheckPeerMtu},
      {"peer-bandwidth", Group::kNetwork, CheckPeerBandwidth, false, kPeerLimit},
  };
}

}  // namespace fulldeck::doctor
