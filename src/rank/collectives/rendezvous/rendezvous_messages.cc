#include "collectives/rendezvous/rendezvous_messages.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/text.h"
#include "fulldeck/collectives.h"

namespace fulldeck::collectives {

std::string EncodeFailure(int code, std::string_view text) {
  return Encode(FailureMessage{.code = code}) + std::string(text.substr(0, kMaxFailureText));
}

std::optional<RendezvousMessage> KindOf(std::string_view packet) {
  auto kind = RendezvousMessage::kProof;
  if (packet.size() < sizeof kind) return std::nullopt;
  std::memcpy(&kind, packet.data(), sizeof kind);
  return kind;
}

std::optional<HelloMessage> DecodeHello(std::string_view packet) {
  HelloMessage hello;
  if (packet.size() != sizeof hello) return std::nullopt;
  std::memcpy(&hello, packet.data(), sizeof hello);
  if (hello.magic != kRendezvousMagic) return std::nullopt;
  return hello;
}

std::optional<DecodedFailure> DecodeFailure(std::string_view packet) {
  FailureMessage message;
  if (packet.size() < sizeof message || packet.size() > kMaxRendezvousPacket) return std::nullopt;
  if (KindOf(packet) != RendezvousMessage::kFailure) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  const bool known = message.code >= FULLDECK_ERROR_STRANGER && message.code <= FULLDECK_ERROR_ARGUMENT;
  return DecodedFailure{known ? message.code : FULLDECK_ERROR_SYSTEM, base::Printable(packet.substr(sizeof message))};
}

std::array<std::uint8_t, 32> MakeRendezvousNonce() {
  std::array<std::uint8_t, 32> bytes{};
  ssize_t got = 0;
  do {
    // Never fewer bytes than requested: the kernel returns up to 256 bytes in one call.
    got = syscall(SYS_getrandom, bytes.data(), bytes.size(), 0U);
  } while (got < 0 && errno == EINTR);
  FULLDECK_CHECK(got == static_cast<ssize_t>(bytes.size()));
  return bytes;
}

wire::Sha256Digest MakeRendezvousProof(std::string_view key, std::string_view group, const HelloMessage& own,
                                       const HelloMessage& others) {
  return wire::HmacSha256(key, "fulldeck meeting proof\n" + Encode(own) + Encode(others) + std::string(group));
}

std::string RendezvousAddress(std::string_view key, std::string_view group, int rank) {
  return "fulldeck-" + wire::HexOf(wire::HmacSha256(
                           key, "fulldeck meeting address\n" + std::to_string(rank) + "\n" + std::string(group)));
}

}  // namespace fulldeck::collectives
