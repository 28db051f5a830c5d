// The messages between two members during the rendezvous, byte by byte. Both sides are on one node, so numbers are in
// host byte order. One packet per message.
//
//   both      HelloMessage      immediately: version, rank, size and a nonce
//   both      ProofMessage      after the peer's hello: proves knowledge of the key
//   both      MemberMessage     after the peer's valid proof; with the descriptors of the memory
//   to 0      ReadyMessage      this member has mapped the memory of all
//   from 0    ReadyMessage      all are ready: the group is established
//   any       FailureMessage    instead of any of the last three
//
// HelloMessage, ProofMessage and FailureMessage are the same in every version, so that members of different versions
// can recognize each other and report the mismatch.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "wire/sha256.h"

namespace fulldeck::collectives {

inline constexpr std::uint64_t kRendezvousMagic = 0x7465656d6b636564;  // "deckmeet"
// Version of the messages and of everything in the memory that is passed.
inline constexpr std::uint32_t kRendezvousVersion = 2;

enum class RendezvousMessage : std::uint32_t { kProof = 1, kMember = 2, kReady = 3, kFailure = 4 };

struct HelloMessage {
  std::uint64_t magic = kRendezvousMagic;
  std::uint32_t version = kRendezvousVersion;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint32_t reserved = 0;
  std::array<std::uint8_t, 32> nonce{};
};
static_assert(sizeof(HelloMessage) == 56 && std::is_trivially_copyable_v<HelloMessage>);

struct ProofMessage {
  RendezvousMessage kind = RendezvousMessage::kProof;
  std::uint32_t reserved = 0;
  wire::Sha256Digest proof{};
};
static_assert(sizeof(ProofMessage) == 40 && std::is_trivially_copyable_v<ProofMessage>);

struct MemberMessage {
  RendezvousMessage kind = RendezvousMessage::kMember;
  std::uint32_t keep_connection = 0;  // 1: the sender watches the receiver through this connection
  std::uint64_t control_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::int32_t node = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(MemberMessage) == 32 && std::is_trivially_copyable_v<MemberMessage>);

struct ReadyMessage {
  RendezvousMessage kind = RendezvousMessage::kReady;
};
static_assert(sizeof(ReadyMessage) == 4 && std::is_trivially_copyable_v<ReadyMessage>);

// Followed by the text.
struct FailureMessage {
  RendezvousMessage kind = RendezvousMessage::kFailure;
  std::int32_t code = 0;
};
static_assert(sizeof(FailureMessage) == 8 && std::is_trivially_copyable_v<FailureMessage>);
inline constexpr std::size_t kMaxFailureText = 4000;
inline constexpr std::size_t kMaxRendezvousPacket = sizeof(FailureMessage) + kMaxFailureText;

template <typename Message>
std::string Encode(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}
std::string EncodeFailure(int code, std::string_view text);

// The kind of the packet, not validated any further; nullopt if the packet is too short.
std::optional<RendezvousMessage> KindOf(std::string_view packet);
// nullopt unless the packet is exactly such a message.
template <typename Message>
std::optional<Message> Decode(std::string_view packet) {
  Message message;
  if (packet.size() != sizeof message || KindOf(packet) != message.kind) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  return message;
}
std::optional<HelloMessage> DecodeHello(std::string_view packet);
struct DecodedFailure {
  int code = 0;      // a code of the public header
  std::string text;  // printable
};
std::optional<DecodedFailure> DecodeFailure(std::string_view packet);

std::array<std::uint8_t, 32> MakeRendezvousNonce();
// Proves knowledge of the key to the peer. The proof covers both hellos, so it can neither be echoed nor replayed, and
// the hellos cannot be modified in transit.
wire::Sha256Digest MakeRendezvousProof(std::string_view key, std::string_view group, const HelloMessage& own,
                                       const HelloMessage& others);
// The address of `rank`: an abstract name; computing it requires the key.
std::string RendezvousAddress(std::string_view key, std::string_view group, int rank);

}  // namespace fulldeck::collectives
