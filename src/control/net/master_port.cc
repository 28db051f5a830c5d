#include "net/master_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "net/port_owner.h"

namespace fulldeck::net {
namespace {

void SetReuse(int fd, bool allowed) {
  const int on = allowed ? 1 : 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

bool Bind(int fd, int family, int port) {
  if (family == AF_INET6) {
    const int on = 1;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

base::Result<base::UniqueFd> BoundSocket(int family, int port) {
  base::UniqueFd held(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held.valid()) return base::ErrnoError("socket");
  // Without SO_REUSEADDR no program at all can bind the port while we hold it. The option is set only if connections
  // of an earlier run on a port that the user named are still in TIME_WAIT, because then the bind fails without it.
  bool bound = Bind(held.get(), family, port);
  if (!bound && errno == EADDRINUSE && port != 0) {
    SetReuse(held.get(), true);
    bound = Bind(held.get(), family, port);
  }
  if (!bound) return base::ErrnoError(fmt::format("port {}", port));
  return held;
}

enum class NameState { kHeld, kOfOurOwnRun, kTakenByOther };

// Holding our user's name proves nothing: the listener behind it must belong to our user, too.
bool IsOfOurUser(const sockaddr_un& address, socklen_t size) {
  const base::UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred holder{};
  socklen_t length = sizeof holder;
  return probe.valid() && connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
         getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &holder, &length) == 0 && holder.uid == geteuid();
}

NameState TakeName(int port, base::UniqueFd* name) {
  name->Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string text = fmt::format("fulldeck-master-port-{}-{}", geteuid(), port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  text.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // a leading zero byte: abstract
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (name->valid() && bind(name->get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) {
    // Lets another launcher check who owns the name. Connections are never accepted.
    listen(name->get(), 64);
    return NameState::kHeld;
  }
  name->Reset();
  return IsOfOurUser(address, size) ? NameState::kOfOurOwnRun : NameState::kTakenByOther;
}

int PortOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.sin_port);
}

}  // namespace

base::Result<MasterPort> MasterPort::Free() {
  // The port must be free on IPv4 and IPv6: torch's store listens on both.
  constexpr int kAttempts = 64;
  base::Error last{"no free port was found"};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto v4 = BoundSocket(AF_INET, 0);
    if (!v4) return v4.error();
    MasterPort port;
    port.number_ = PortOf(v4->get());
    port.v4_ = std::move(*v4);
    auto v6 = BoundSocket(AF_INET6, port.number_);
    const bool v6_taken = !v6 && v6.error().system_error == EADDRINUSE;
    if (v6) port.v6_ = std::move(*v6);
    if (!v6_taken && TakeName(port.number_, &port.name_) != NameState::kOfOurOwnRun) return port;
    if (v6_taken) last = v6.error();
  }
  return last;
}

base::Result<MasterPort> MasterPort::Named(int number) {
  auto v4 = BoundSocket(AF_INET, number);
  auto v6 = BoundSocket(AF_INET6, number);
  const bool v6_taken = !v6 && v6.error().system_error == EADDRINUSE;
  if (!v4 || v6_taken) {
    const base::Error& why = v4 ? v6.error() : v4.error();
    if (why.system_error != EADDRINUSE) return why;
    return base::Error{fmt::format("port {} is taken by {}. Stop it, or name another port with --master-port, or leave "
                                   "--master-port away: a free port is then chosen",
                                   number, ListenerOnPort(number).value_or("a process that cannot be seen from here")),
                       EADDRINUSE};
  }
  MasterPort port;
  if (TakeName(number, &port.name_) == NameState::kOfOurOwnRun) {
    return base::Error{
        fmt::format("port {} is held by another fulldeck run (fulldeck ps shows it). Name another port with "
                    "--master-port, or leave it away: a free port is then chosen",
                    number),
        EADDRINUSE};
  }
  port.number_ = number;
  port.v4_ = std::move(*v4);
  if (v6) port.v6_ = std::move(*v6);
  return port;
}

void MasterPort::LetStoreBind() {
  for (const base::UniqueFd* held : {&v4_, &v6_}) {
    if (held->valid()) SetReuse(held->get(), true);
  }
}

}  // namespace fulldeck::net
