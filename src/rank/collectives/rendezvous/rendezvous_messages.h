// What two members say to each other while they meet, byte by byte. Both sides are on one host, so numbers are as the
// processor has them. One packet a message.
//
//   both      HelloMessage               at once: version, rank, size and a random number
//   both      ProofMessage           when the other's hello is here: knows the key
//   both      MemberMessage          when the other's proof is right; with the descriptors of the memory
//   to 0      ReadyMessage           everybody's memory is mapped here
//   from 0    ReadyMessage           everybody is ready: the group stands
//   any       FailureMessage         instead of any of the last three
//
// HelloMessage, ProofMessage and FailureMessage stay as they are in every version, so that members of different
// versions can still tell each other apart from unauthenticated_peers, and say so.
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
// Of the messages and of everything that lies in the memory that is passed.
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

// The text follows.
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

// What the packet begins with, checked for nothing but its number; nothing when it is too short for one.
std::optional<RendezvousMessage> KindOf(std::string_view packet);
// Nothing unless the packet is exactly such a message.
template <typename Message>
std::optional<Message> Decode(std::string_view packet) {
  Message message;
  if (packet.size() != sizeof message || KindOf(packet) != message.kind) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  return message;
}
std::optional<HelloMessage> DecodeHello(std::string_view packet);
struct DecodedFailure {
  int code = 0;      // one of the public header's
  std::string text;  // fit to be shown
};
std::optional<DecodedFailure> DecodeFailure(std::string_view packet);

std::array<std::uint8_t, 32> MakeRendezvousNonce();
// Of the one who knows the key, made for the other. It is bound to both greetings, so it can neither be sent back nor
// used again, and nothing in the greetings can be changed on the way.
wire::Sha256Digest MakeRendezvousProof(std::string_view key, std::string_view group, const HelloMessage& own,
                                       const HelloMessage& others);
// Where `rank` listens: an abstract name that nobody can make who does not have the key.
std::string RendezvousAddress(std::string_view key, std::string_view group, int rank);

}  // namespace fulldeck::collectives
