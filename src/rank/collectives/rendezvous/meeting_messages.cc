#include "collectives/rendezvous/meeting_messages.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/text.h"
#include "fulldeck/collectives.h"

namespace fulldeck::collectives {

std::string EncodeFailure(int code, std::string_view text) {
  return Encode(FailureMessage{.code = code}) + std::string(text.substr(0, kLongestFailureText));
}

std::optional<MeetingMessage> KindOf(std::string_view packet) {
  auto kind = MeetingMessage::kProof;
  if (packet.size() < sizeof kind) return std::nullopt;
  std::memcpy(&kind, packet.data(), sizeof kind);
  return kind;
}

std::optional<Greeting> DecodeGreeting(std::string_view packet) {
  Greeting greeting;
  if (packet.size() != sizeof greeting) return std::nullopt;
  std::memcpy(&greeting, packet.data(), sizeof greeting);
  if (greeting.magic != kMeetingMagic) return std::nullopt;
  return greeting;
}

std::optional<DecodedFailure> DecodeFailure(std::string_view packet) {
  FailureMessage message;
  if (packet.size() < sizeof message || packet.size() > kLongestMeetingPacket) return std::nullopt;
  if (KindOf(packet) != MeetingMessage::kFailure) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  const bool known = message.code >= FULLDECK_ERROR_STRANGER && message.code <= FULLDECK_ERROR_ARGUMENT;
  return DecodedFailure{known ? message.code : FULLDECK_ERROR_SYSTEM, base::Printable(packet.substr(sizeof message))};
}

std::array<std::uint8_t, 32> MakeMeetingNonce() {
  std::array<std::uint8_t, 32> bytes{};
  ssize_t got = 0;
  do {
    // Never less than asked for: the kernel gives up to 256 bytes at once.
    got = syscall(SYS_getrandom, bytes.data(), bytes.size(), 0U);
  } while (got < 0 && errno == EINTR);
  CHECK(got == static_cast<ssize_t>(bytes.size()));
  return bytes;
}

wire::Sha256Digest MakeMeetingProof(std::string_view key, std::string_view group, const Greeting& own,
                                    const Greeting& others) {
  return wire::HmacSha256(key, "fulldeck meeting proof\n" + Encode(own) + Encode(others) + std::string(group));
}

std::string MeetingAddress(std::string_view key, std::string_view group, int rank) {
  return "fulldeck-" + wire::HexOf(wire::HmacSha256(
                           key, "fulldeck meeting address\n" + std::to_string(rank) + "\n" + std::string(group)));
}

}  // namespace fulldeck::collectives
