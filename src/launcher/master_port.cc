#include "launcher/master_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>

#include "launcher/port_owner.h"

namespace fulldeck::launcher {
namespace {

base::Result<base::UniqueFd> BoundSocket(int family, int port) {
  base::UniqueFd held(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held.valid()) return base::ErrnoError("socket");
  const int on = 1;
  setsockopt(held.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int bound = -1;
  if (family == AF_INET6) {
    setsockopt(held.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    bound = bind(held.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    bound = bind(held.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (bound != 0) return base::ErrnoError(fmt::format("port {}", port));
  return held;
}

base::Result<base::UniqueFd> BoundName(int port) {
  base::UniqueFd held(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held.valid()) return base::ErrnoError("socket");
  const std::string name = fmt::format("fulldeck-master-port-{}", port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // a zero first: abstract
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(held.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return base::ErrnoError(name);
  return held;
}

int PortOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.sin_port);
}

}  // namespace

base::Result<MasterPort> MasterPort::Free() {
  // The same number must be free on IPv4 and IPv6: a store of torch listens on both.
  constexpr int kTries = 64;
  base::Error last{"no free port was found"};
  for (int attempt = 0; attempt < kTries; ++attempt) {
    auto v4 = BoundSocket(AF_INET, 0);
    if (!v4) return v4.error();
    MasterPort port;
    port.number_ = PortOf(v4->get());
    port.v4_ = std::move(*v4);
    auto v6 = BoundSocket(AF_INET6, port.number_);
    const bool v6_taken = !v6 && v6.error().system_error == EADDRINUSE;
    if (v6) port.v6_ = std::move(*v6);
    auto name = BoundName(port.number_);
    if (!v6_taken && name) {
      port.name_ = std::move(*name);
      return port;
    }
    last = v6_taken ? v6.error() : name.error();
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
  auto name = BoundName(number);
  if (!name) {
    return base::Error{
        fmt::format("port {} is held by another fulldeck run (fulldeck ps shows it). Name another port with "
                    "--master-port, or leave it away: a free port is then chosen",
                    number),
        EADDRINUSE};
  }
  MasterPort port;
  port.number_ = number;
  port.name_ = std::move(*name);
  port.v4_ = std::move(*v4);
  if (v6) port.v6_ = std::move(*v6);
  return port;
}

}  // namespace fulldeck::launcher
