// The messages between launchers of different nodes and their JSON encoding, described in docs/wire-format.md. Pure.
// Decoding trusts nothing: it checks types, ranges and lengths, and makes text printable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "net/message_link.h"
#include "nodes/node_group.h"

namespace fulldeck::nodes {

inline constexpr std::uint32_t kHandshakeMessageLimit = 4096;    // before authentication
inline constexpr std::uint32_t kMemberMessageLimit = 64 * 1024;  // what a member sends

// Handshake, in this order. Nonces and proofs are 64 hexadecimal digits.
struct HelloMessage {  // member to coordinator
  std::string nonce;
};
struct ChallengeMessage {  // coordinator to member
  std::string nonce;
};
struct ProofMessage {  // member to coordinator, then coordinator to member
  std::string proof;
};
struct JoinMessage {  // member to coordinator
  std::string host_name;
  std::optional<std::string> address;  // --local-addr of the member
  std::optional<int> node_rank;
  int ranks = 1;
  int min_nodes = 1;
  int max_nodes = 1;
};
struct JoinedMessage {    // coordinator to member
  std::string host_name;  // of the coordinator
  int nodes = 0;          // that have joined, including the coordinator and this member
};
// Coordinator to member, instead of any message above: rejected; retrying cannot help.
struct RefusedMessage {
  std::string reason;
};

// Coordinator to member.
struct WaitingMessage {
  std::string text;  // which nodes are missing
};
struct StartMessage {
  // master_addr is empty if the member must use the address by which it reached the coordinator.
  AttemptStart start;
};
struct StopMessage {
  int attempt = 0;
  NodeFailure failure;
};
struct RestartMessage {
  int attempt = 0;  // the one that has ended
  NodeFailure failure;
  std::uint64_t delay_ms = 0;
};
struct FinishedMessage {
  std::optional<NodeFailure> failure;
};
struct GaveUpMessage {
  std::string reason;
};

// Member to coordinator. Attempt -1: before the first one.
struct FailedMessage {
  int attempt = 0;
  NodeFailure failure;
  std::uint64_t age_ns = 0;  // time from seeing the failure to sending this message
};
struct StoppedMessage {
  int attempt = 0;
};
struct SucceededMessage {
  int attempt = 0;
};

// In both directions.
struct HeartbeatMessage {
  std::uint64_t count = 0;    // 1, 2, 3 …
  std::uint64_t echo = 0;     // the last count received from the other end; 0: none
  std::uint64_t held_ns = 0;  // time from receiving that count to sending this message
  std::uint64_t best_step = 0;
};

using NodeMessage =
    std::variant<HelloMessage, ChallengeMessage, ProofMessage, JoinMessage, JoinedMessage, RefusedMessage,
                 WaitingMessage, StartMessage, StopMessage, RestartMessage, FinishedMessage, GaveUpMessage,
                 FailedMessage, StoppedMessage, SucceededMessage, HeartbeatMessage>;

std::string EncodeNodeMessage(const NodeMessage& message);
base::Result<NodeMessage> DecodeNodeMessage(std::string_view text);

}  // namespace fulldeck::nodes
