#include "doctor/network/peer_listener.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "net/host_address.h"
#include "wire/sha256.h"

namespace fulldeck::doctor {
namespace {

constexpr std::size_t kMaxConnections = 64;
constexpr base::Duration kSilence = std::chrono::seconds(10);
constexpr base::Duration kHandshakeTimeout = std::chrono::seconds(2);
constexpr std::string_view kRequest = "FDDOCTOR";
constexpr std::string_view kAnswer = "FDANSWER";
constexpr std::size_t kSignedBytes = 32;

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

void Pause(base::Duration time) {
  if (time <= base::Duration()) return;
  const auto count = time.count();
  const timespec pause{static_cast<time_t>(count / 1'000'000'000), static_cast<long>(count % 1'000'000'000)};
  nanosleep(&pause, nullptr);
}

PeerMessage Signed(std::string_view magic, std::uint32_t what, std::uint32_t number, const PeerNonce& nonce,
                   std::string_view token) {
  PeerMessage message{};
  const std::array<std::uint32_t, 2> numbers = {htonl(what), htonl(number)};
  std::memcpy(message.data(), magic.data(), magic.size());
  std::memcpy(message.data() + magic.size(), numbers.data(), sizeof numbers);
  std::memcpy(message.data() + magic.size() + sizeof numbers, nonce.data(), nonce.size());
  const wire::Sha256Digest proof = wire::HmacSha256(token, std::string_view(message.data(), kSignedBytes));
  std::memcpy(message.data() + kSignedBytes, proof.data(), proof.size());
  return message;
}

// The kind of the request and its nonce; nullopt if it is not a request with the token.
std::optional<std::pair<PeerRequest, PeerNonce>> ReadRequest(const char* bytes, std::string_view token) {
  PeerMessage message;
  std::memcpy(message.data(), bytes, message.size());
  std::uint32_t what = 0;
  PeerNonce nonce;
  std::memcpy(&what, message.data() + kRequest.size(), sizeof what);
  std::memcpy(nonce.data(), message.data() + kRequest.size() + 2 * sizeof what, nonce.size());
  const auto request = static_cast<PeerRequest>(ntohl(what));
  const PeerMessage wanted = MakePeerRequest(request, nonce, token);
  if (!wire::EqualInConstantTime({message.data(), message.size()}, {wanted.data(), wanted.size()})) return std::nullopt;
  return std::pair(request, nonce);
}

}  // namespace

PeerNonce NewPeerNonce() {
  PeerNonce nonce{};
  if (getrandom(nonce.data(), nonce.size(), 0) < 0) nonce[0] = static_cast<char>(getpid());
  return nonce;
}

PeerMessage MakePeerRequest(PeerRequest what, const PeerNonce& nonce, std::string_view token) {
  return Signed(kRequest, static_cast<std::uint32_t>(what), 0, nonce, token);
}

std::optional<std::uint32_t> ReadPeerAnswer(const PeerMessage& bytes, PeerRequest what, const PeerNonce& nonce,
                                            std::string_view token) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data() + kAnswer.size() + sizeof number, sizeof number);
  const PeerMessage wanted = Signed(kAnswer, static_cast<std::uint32_t>(what), ntohl(number), nonce, token);
  return bytes == wanted ? std::optional(ntohl(number)) : std::nullopt;
}

base::Result<std::string> ReachableAddress(const std::string& name, const net::HostAddress& address,
                                           const std::vector<NetworkInterface>& interfaces) {
  if (!address.IsLoopback()) return address.Numeric();
  std::vector<std::string> others;
  for (const NetworkInterface& interface : interfaces) {
    if (!interface.up || interface.loopback) continue;
    const auto usable = std::find_if(interface.addresses.begin(), interface.addresses.end(),
                                     [](const std::string& one) { return !one.starts_with("fe80"); });
    if (usable != interface.addresses.end()) others.push_back(*usable);
  }
  if (others.empty()) return address.Numeric();
  if (others.size() == 1) return others.front();
  return base::Error{
      "the name " + base::Printable(name) +
      " leads to the loopback address, which no other node reaches. Name the address of an interface with "
      "--address: " +
      base::Join(others, ", ")};
}

base::Result<PeerListener> PeerListener::Open(const net::HostAddress& address, std::string token, PeerFaults faults) {
  PeerListener made;
  made.faults_ = faults;
  made.token_ = std::move(token);
  auto listener = net::ListenOn(address);
  if (!listener) return listener.error();
  made.listener_ = std::move(*listener);
  const net::HostAddress at = net::LocalEnd(made.listener_.get());
  made.port_ = at.port();
  made.datagrams_.Reset(socket(at.get()->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.datagrams_.valid()) return base::ErrnoError("cannot make a socket");
  if (at.get()->sa_family == AF_INET6) {
    const int both = 0;
    static_cast<void>(setsockopt(made.datagrams_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both));
  }
  if (bind(made.datagrams_.get(), at.get(), at.length()) != 0) {
    return base::ErrnoError("cannot receive datagrams on " + at.WithPort());
  }
  return made;
}

void PeerListener::Serve(base::Duration time) {
  const base::TimePoint until = Now() + time;
  while (Now() < until) {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}, {datagrams_.get(), POLLIN, 0}};
    for (const Connection& one : connections_) polled.push_back({one.fd.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Now()).count();
    if (poll(polled.data(), polled.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 200))) < 0) continue;
    for (std::size_t i = connections_.size(); i-- > 0;) {
      Connection& one = connections_[i];
      const base::Duration silence = one.proven ? kSilence : kHandshakeTimeout;
      const bool goes_on = polled[i + 2].revents == 0 ? Now() - one.heard < silence : Advance(one);
      if (!goes_on) connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (polled[0].revents != 0) Accept();
    if (polled[1].revents != 0) AnswerDatagram();
  }
}

void PeerListener::Accept() {
  base::UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid() || connections_.size() >= kMaxConnections) return;
  net::TuneConnection(fd.get(), std::chrono::duration_cast<std::chrono::milliseconds>(kSilence));
  connections_.push_back({std::move(fd), {}, false, false, 0, Now()});
}

void PeerListener::AnswerDatagram() {
  std::array<char, 65536> bytes;
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  auto* address = reinterpret_cast<sockaddr*>(&from);
  const ssize_t got = recvfrom(datagrams_.get(), bytes.data(), bytes.size(), 0, address, &length);
  if (got < static_cast<ssize_t>(sizeof(PeerMessage)) || static_cast<std::size_t>(got) > faults_.largest_datagram)
    return;
  if (Now() - second_ >= std::chrono::seconds(1)) {
    second_ = Now();
    answered_ = 0;
  }
  const auto request = ReadRequest(bytes.data(), token_);
  if (!request || request->first != PeerRequest::kDatagram || ++answered_ > kMaxDatagramsPerSecond) return;
  const PeerMessage answer = Signed(kAnswer, static_cast<std::uint32_t>(PeerRequest::kDatagram),
                                    static_cast<std::uint32_t>(got), request->second, token_);
  static_cast<void>(sendto(datagrams_.get(), answer.data(), answer.size(), MSG_NOSIGNAL, address, length));
}

bool PeerListener::Advance(Connection& connection) {
  // A byte now and then does not keep an unauthenticated connection open.
  if (connection.proven) connection.heard = Now();
  std::array<char, 1 << 18> bytes;
  if (connection.sinks) Pause(faults_.pause);
  const std::size_t room = connection.sinks ? bytes.size() : sizeof(PeerMessage) - connection.request.size();
  const ssize_t got = recv(connection.fd.get(), bytes.data(), room, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (connection.sinks) {
    connection.count += static_cast<std::uint64_t>(got);
    if (got > 0) return true;
    const std::uint64_t count = htobe64(connection.count);
    static_cast<void>(send(connection.fd.get(), &count, sizeof count, MSG_NOSIGNAL));
    return false;
  }
  if (got == 0) return false;
  connection.request.insert(connection.request.end(), bytes.begin(), bytes.begin() + got);
  if (connection.request.size() < sizeof(PeerMessage)) return Now() - connection.heard < kHandshakeTimeout;
  const auto request = ReadRequest(connection.request.data(), token_);
  connection.request.clear();
  if (!request) return false;
  connection.proven = true;
  connection.heard = Now();
  if (request->first == PeerRequest::kSink) {
    connection.sinks = true;
    return true;
  }
  if (request->first != PeerRequest::kEcho) return false;
  const PeerMessage answer =
      Signed(kAnswer, static_cast<std::uint32_t>(PeerRequest::kEcho), 0, request->second, token_);
  // Small compared with the socket buffer: a partial send means that the other side has stopped reading.
  return send(connection.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(answer.size());
}

}  // namespace fulldeck::doctor
