#include "doctor/peer_listener.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/host_address.h"

namespace fulldeck::doctor {
namespace {

constexpr std::size_t kMostConnections = 64;
constexpr base::Duration kSilence = std::chrono::seconds(10);

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

void Pause(base::Duration time) {
  if (time <= base::Duration()) return;
  const auto count = time.count();
  const timespec pause{static_cast<time_t>(count / 1'000'000'000), static_cast<long>(count % 1'000'000'000)};
  nanosleep(&pause, nullptr);
}

}  // namespace

base::Result<PeerListener> PeerListener::Open(int port, PeerFaults faults) {
  PeerListener made;
  made.faults_ = faults;
  auto listener = launcher::ListenOn(launcher::HostAddress::Any(port));
  if (!listener) return listener.error();
  made.listener_ = std::move(*listener);
  const launcher::HostAddress at = launcher::LocalEnd(made.listener_.get());
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
      const bool goes_on = polled[i + 2].revents == 0 ? Now() - one.heard < kSilence : Advance(one);
      if (!goes_on) connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (polled[0].revents != 0) Accept();
    if (polled[1].revents != 0) AnswerDatagram();
  }
}

void PeerListener::Accept() {
  base::UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid() || connections_.size() >= kMostConnections) return;
  launcher::TuneConnection(fd.get(), std::chrono::duration_cast<std::chrono::milliseconds>(kSilence));
  connections_.push_back({std::move(fd), {}, false, 0, Now()});
}

void PeerListener::AnswerDatagram() {
  std::array<char, 65536> bytes;
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  auto* address = reinterpret_cast<sockaddr*>(&from);
  const ssize_t got = recvfrom(datagrams_.get(), bytes.data(), bytes.size(), 0, address, &length);
  if (got < static_cast<ssize_t>(kPeerMagic.size()) || static_cast<std::size_t>(got) > faults_.largest_datagram) return;
  if (std::memcmp(bytes.data(), kPeerMagic.data(), kPeerMagic.size()) != 0) return;
  std::array<char, 12> answer;
  const std::uint32_t size = htonl(static_cast<std::uint32_t>(got));
  std::memcpy(answer.data(), kPeerMagic.data(), kPeerMagic.size());
  std::memcpy(answer.data() + kPeerMagic.size(), &size, sizeof size);
  static_cast<void>(sendto(datagrams_.get(), answer.data(), answer.size(), MSG_NOSIGNAL, address, length));
}

bool PeerListener::Advance(Connection& connection) {
  connection.heard = Now();
  std::array<char, 1 << 18> bytes;
  if (connection.sinks) Pause(faults_.pause);
  const std::size_t room = connection.sinks ? bytes.size() : kPeerRequestBytes - connection.request.size();
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
  if (connection.request.size() < kPeerRequestBytes) return true;
  if (std::memcmp(connection.request.data(), kPeerMagic.data(), kPeerMagic.size()) != 0) return false;
  std::uint32_t what = 0;
  std::memcpy(&what, connection.request.data() + kPeerMagic.size(), sizeof what);
  what = ntohl(what);
  if (what == static_cast<std::uint32_t>(PeerRequest::kSink)) {
    connection.sinks = true;
    return true;
  }
  if (what != static_cast<std::uint32_t>(PeerRequest::kEcho)) return false;
  // Small against the socket's buffer: it goes out whole, or the other side has stopped reading.
  const ssize_t sent = send(connection.fd.get(), connection.request.data(), kPeerRequestBytes, MSG_NOSIGNAL);
  connection.request.clear();
  return sent == static_cast<ssize_t>(kPeerRequestBytes);
}

}  // namespace fulldeck::doctor
