#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/files/unique_fd.h"
#include "base/text.h"
#include "doctor/network/network_checks.h"
#include "doctor/network/peer_listener.h"
#include "net/host_address.h"
#include "wire/variables.h"

namespace fulldeck::doctor {
namespace {

using base::Duration;
using base::TimePoint;

constexpr Duration kTimeToConnect = std::chrono::seconds(2);
constexpr Duration kTimeForADatagram = std::chrono::milliseconds(120);
constexpr Duration kTimeForTheLastTry = std::chrono::seconds(1);  // a busy peer answers late
constexpr Duration kSlice = std::chrono::milliseconds(100);
constexpr int kEchoes = 20;
constexpr double kGoodRate = 100e6;  // bytes per second
constexpr double kMinRate = 5e6;

TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

bool WaitFor(int fd, short events, TimePoint until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Now()).count();
    if (left <= 0) return false;
    pollfd polled{fd, events, 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

struct Peer {
  std::string shown;  // as the user wrote it
  std::string host;
  int port = kPeerPort;
};

// "a", "a:1234", "[::1]:1234"
std::optional<Peer> ParsePeer(const std::string& text) {
  Peer peer;
  peer.shown = base::Printable(text);
  const auto bracket = text.find(']');
  const auto colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  const bool bare_ipv6 = bracket == std::string::npos && std::count(text.begin(), text.end(), ':') > 1;
  peer.host = bare_ipv6 ? text : text.substr(0, colon);
  if (peer.host.size() > 1 && peer.host.front() == '[') peer.host = peer.host.substr(1, peer.host.size() - 2);
  if (!bare_ipv6 && colon != std::string::npos) {
    const auto port = base::ParseInteger<int>(std::string_view(text).substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return std::nullopt;
    peer.port = *port;
  }
  if (peer.host.empty()) return std::nullopt;
  return peer;
}

base::Result<net::HostAddress> AddressOf(const Peer& peer) {
  auto addresses = net::ResolveHost(peer.host, peer.port);
  if (!addresses) return addresses.error();
  return addresses->front();
}

base::Result<base::UniqueFd> Connect(const net::HostAddress& address) {
  auto fd = net::BeginConnect(address);
  if (!fd) return fd;
  if (!WaitFor(fd->get(), POLLOUT, Now() + kTimeToConnect)) {
    return base::ErrnoError("no connection to " + address.WithPort(), ETIMEDOUT);
  }
  if (const int error = net::ConnectOutcome(fd->get()); error != 0) {
    return base::ErrnoError("no connection to " + address.WithPort(), error);
  }
  net::TuneConnection(fd->get(), std::chrono::milliseconds(2000));
  return fd;
}

bool SendRequest(int fd, const PeerMessage& request) {
  return send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size());
}

std::string TokenOf(const MachineUnderTest& machine) {
  return machine.environment.Get(wire::kTokenVariable).value_or("");
}

bool Receive(int fd, void* bytes, std::size_t size, TimePoint until) {
  std::size_t got = 0;
  while (got < size) {
    if (!WaitFor(fd, POLLIN, until)) return false;
    const ssize_t count = recv(fd, static_cast<char*>(bytes) + got, size - got, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (count > 0) got += static_cast<std::size_t>(count);
  }
  return true;
}

Finding BadPeer(const std::string& text) {
  return Fail(
      Bilingual("--hosts: '{}' is no HOST or HOST:PORT", "--hosts：“{}”不是 HOST 或 HOST:PORT", base::Printable(text)),
      Bilingual("fulldeck doctor --hosts node2,node3:29533", "fulldeck doctor --hosts node2,node3:29533"), "I9");
}

base::BilingualText StartListener(const Peer& peer) {
  return Bilingual("start there, and let the port through: fulldeck doctor --listen {}; here set {} as it says",
                   "在该主机执行并放行端口：fulldeck doctor --listen {}；并在本机按其提示设置 {}", peer.port,
                   wire::kTokenVariable);
}

// Checks every peer in turn.
template <typename CheckPeer>
std::vector<Finding> ForEachPeer(const MachineUnderTest& machine, const CheckPeer& check_peer) {
  std::vector<Finding> findings;
  for (const std::string& text : machine.peers) {
    const auto peer = ParsePeer(text);
    findings.push_back(peer ? check_peer(*peer) : BadPeer(text));
  }
  return findings;
}

Finding NotReached(const Peer& peer, const base::Error& error) {
  const base::BilingualText seen = {peer.shown + ": " + base::Printable(error.message),
                                    peer.shown + "：" + base::Printable(error.message)};
  if (error.system_error == ECONNREFUSED) {
    return CannotTell(
        {seen.english + ": the host answers, but nobody listens", seen.chinese + "：主机有应答，但没有监听"},
        StartListener(peer), "I9");
  }
  return Fail(seen,
              Bilingual("check the name, the route (ip route get {0}) and the firewall between the hosts",
                        "检查主机名、路由（ip route get {0}）以及主机间的防火墙", peer.host),
              "I9");
}

Finding Reach(const Peer& peer, const std::string& token) {
  const auto address = AddressOf(peer);
  if (!address) return NotReached(peer, address.error());
  const auto fd = Connect(*address);
  if (!fd) return NotReached(peer, fd.error());
  std::vector<Duration> took;
  for (int i = 0; i < kEchoes; ++i) {
    const TimePoint begin = Now();
    PeerMessage answer{};
    const PeerNonce nonce = NewPeerNonce();
    if (!SendRequest(fd->get(), MakePeerRequest(PeerRequest::kEcho, nonce, token)) ||
        !Receive(fd->get(), answer.data(), answer.size(), begin + kTimeToConnect) ||
        !ReadPeerAnswer(answer, PeerRequest::kEcho, nonce, token)) {
      return CannotTell(Bilingual("{}: no fulldeck doctor --listen with the same {} answers on port {}",
                                  "{}：没有使用相同 {} 的 fulldeck doctor --listen 在端口 {} 上应答", peer.shown,
                                  wire::kTokenVariable, peer.port),
                        StartListener(peer), "I9");
    }
    took.push_back(Now() - begin);
  }
  std::sort(took.begin(), took.end());
  const double median = std::chrono::duration<double, std::micro>(took[took.size() / 2]).count();
  return Ok(Bilingual("{} ({}): {} messages there and back, {:.0f} µs each",
                      "{}（{}）：往返 {} 条消息，每条 {:.0f} 微秒", peer.shown, address->Numeric(), kEchoes, median),
            {{"peer", peer.shown}, {"median_us", fmt::format("{:.0f}", median)}});
}

// Whether a datagram that makes a packet of `packet` bytes is answered; two attempts.
bool PassesWhole(int fd, std::size_t packet, std::size_t headers, const std::string& token,
                 Duration time = kTimeForADatagram) {
  std::string bytes(packet - headers, 'x');
  const PeerNonce nonce = NewPeerNonce();
  const PeerMessage request = MakePeerRequest(PeerRequest::kDatagram, nonce, token);
  std::copy(request.begin(), request.end(), bytes.begin());
  for (int i = 0; i < 2; ++i) {
    if (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == EMSGSIZE) return false;
    const TimePoint until = Now() + time;
    while (WaitFor(fd, POLLIN, until)) {
      PeerMessage answer{};
      const ssize_t got = recv(fd, answer.data(), answer.size(), 0);
      // An ICMP error: the port is closed, or the packet is too large for a link on the way.
      if (got < 0) break;
      // Ignore a late answer to an earlier size.
      const auto size = ReadPeerAnswer(answer, PeerRequest::kDatagram, nonce, token);
      if (got == static_cast<ssize_t>(answer.size()) && size == bytes.size()) return true;
    }
  }
  return false;
}

Finding Mtu(const Peer& peer, const std::string& token) {
  const auto address = AddressOf(peer);
  if (!address) return NotReached(peer, address.error());
  const bool ipv6 = address->get()->sa_family == AF_INET6;
  const base::UniqueFd fd(socket(address->get()->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int probe = ipv6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
  const int level = ipv6 ? static_cast<int>(IPPROTO_IPV6) : static_cast<int>(IPPROTO_IP);
  const bool ready =
      fd.valid() &&
      setsockopt(fd.get(), level, ipv6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &probe, sizeof probe) == 0 &&
      connect(fd.get(), address->get(), address->length()) == 0;
  int mtu = 0;
  socklen_t length = sizeof mtu;
  if (!ready || getsockopt(fd.get(), level, ipv6 ? IPV6_MTU : IP_MTU, &mtu, &length) != 0 || mtu < 576) {
    return CannotTell(Bilingual("{}: the way there cannot be measured", "{}：无法测量到该主机的路径", peer.shown),
                      Bilingual("see the check peer-reach", "见检查 peer-reach"), "I9");
  }
  const std::size_t headers = ipv6 ? 48 : 28;
  // A datagram of the loopback's MTU would exceed the largest packet size.
  const auto whole = std::min<std::size_t>(static_cast<std::size_t>(mtu), 65'000);
  const Figures figures = {{"peer", peer.shown}, {"mtu", std::to_string(whole)}};
  const Finding passes =
      Ok(Bilingual("{}: packets of {} bytes pass whole", "{}：{} 字节的包完整通过", peer.shown, whole), figures);
  if (PassesWhole(fd.get(), whole, headers, token)) return passes;
  for (const std::size_t smaller : {8000, 4000, 1500, 1450, 1400, 1280, 576}) {
    if (smaller >= whole || !PassesWhole(fd.get(), smaller, headers, token)) continue;
    if (PassesWhole(fd.get(), whole, headers, token, kTimeForTheLastTry)) return passes;
    return Fail(
        Bilingual(
            "{}: packets of {} bytes, this interface's MTU, are lost; {} bytes pass: large messages hang where small "
            "ones work",
            "{}：{} 字节（本网卡 MTU）的包丢失，{} 字节可通过：大消息会挂起而小消息正常", peer.shown, whole, smaller),
        Bilingual("set the MTU of the interface to {0} on all hosts (ip link set dev NAME mtu {0}), or mend the switch",
                  "将各主机网卡 MTU 设为 {0}（ip link set dev NAME mtu {0}），或修正交换机配置", smaller),
        "I9", figures);
  }
  return CannotTell(
      Bilingual("{}: no datagram is answered", "{}：数据报没有应答", peer.shown),
      Bilingual("let UDP through on port {0}, and start there: fulldeck doctor --listen {0}; here set {1} as it "
                "says",
                "放行 UDP 端口 {0}，并在对方执行：fulldeck doctor --listen {0}；并在本机按其提示设置 {1}", peer.port,
                wire::kTokenVariable),
      "I9", figures);
}

Finding Bandwidth(const Peer& peer, const std::string& token, Duration time) {
  const auto address = AddressOf(peer);
  if (!address) return NotReached(peer, address.error());
  const auto fd = Connect(*address);
  if (!fd) return NotReached(peer, fd.error());
  const PeerMessage request = MakePeerRequest(PeerRequest::kSink, NewPeerNonce(), token);
  if (!SendRequest(fd->get(), request)) return NotReached(peer, base::ErrnoError("nothing can be sent"));
  const std::string block(1 << 18, 'f');
  const TimePoint begin = Now();
  std::uint64_t sent = 0;
  // The fastest slice counts, so that a busy machine is not taken for a slow path. The first one only fills buffers.
  double best = 0;
  TimePoint slice = begin;
  std::uint64_t sent_before = 0;
  while (Now() - begin < time) {
    if (!WaitFor(fd->get(), POLLOUT, begin + time)) break;
    const ssize_t count = send(fd->get(), block.data(), block.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) break;
    if (count > 0) sent += static_cast<std::uint64_t>(count);
    const Duration passed = Now() - slice;
    if (passed < kSlice) continue;
    const double rate = static_cast<double>(sent - sent_before) / std::chrono::duration<double>(passed).count();
    if (slice != begin) best = std::max(best, rate);
    slice += passed;
    sent_before = sent;
  }
  shutdown(fd->get(), SHUT_WR);
  std::uint64_t counted = 0;
  // Data in transit arrives before the answer.
  const bool answered = Receive(fd->get(), &counted, sizeof counted, Now() + kTimeToConnect);
  const double seconds = std::chrono::duration<double>(Now() - begin).count();
  counted = be64toh(counted);
  const base::BilingualText fix = Bilingual(
      "look at the link (ethtool), at its errors (ip -s link), and at who else uses it; or choose another "
      "interface (see the check interface)",
      "检查链路（ethtool）、错误计数（ip -s link）以及占用者；或换网卡（见检查 interface）");
  if (!answered || counted != sent) {
    return Fail(
        Bilingual("{}: {} sent within {:.1f} s, and the other side did not get them all",
                  "{}：已发送 {}（{:.1f} 秒），对方没有全部收到", peer.shown, base::FormatByteSize(sent), seconds),
        fix, "I9", {{"peer", peer.shown}});
  }
  const double rate = std::max(static_cast<double>(counted) / seconds, best);
  const Figures figures = {{"peer", peer.shown}, {"bytes_per_second", fmt::format("{:.0f}", rate)}};
  const base::BilingualText seen = Bilingual("{}: {:.0f} MB/s", "{}：{:.0f} MB/s", peer.shown, rate / 1e6);
  if (rate >= kGoodRate) return Ok(seen, figures);
  if (rate < kMinRate) return Fail(seen, fix, "I9", figures);
  return Warn(seen, fix, "I9", figures);
}

}  // namespace

std::vector<Finding> CheckPeerReach(const MachineUnderTest& machine) {
  return ForEachPeer(machine, [&](const Peer& peer) { return Reach(peer, TokenOf(machine)); });
}

std::vector<Finding> CheckPeerMtu(const MachineUnderTest& machine) {
  return ForEachPeer(machine, [&](const Peer& peer) { return Mtu(peer, TokenOf(machine)); });
}

std::vector<Finding> CheckPeerBandwidth(const MachineUnderTest& machine) {
  const Duration time = machine.deep ? std::chrono::milliseconds(2000) : std::chrono::milliseconds(500);
  return ForEachPeer(machine, [&](const Peer& peer) { return Bandwidth(peer, TokenOf(machine), time); });
}

}  // namespace fulldeck::doctor
