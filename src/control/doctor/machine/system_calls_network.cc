#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/files/unique_fd.h"
#include "base/host_name.h"
#include "doctor/machine/system_calls.h"
#include "net/host_address.h"

namespace fulldeck::doctor {
namespace {

constexpr int kTimeoutMilliseconds = 2000;

int MtuOf(const std::string& interface) {
  const base::UniqueFd socket_of_any_kind(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  return ioctl(socket_of_any_kind.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

base::Result<void> WaitFor(int fd, short events, const char* what) {
  pollfd polled{fd, events, 0};
  const int ready = poll(&polled, 1, kTimeoutMilliseconds);
  if (ready > 0) return {};
  if (ready < 0) return base::ErrnoError(what);
  return base::ErrnoError(what, ETIMEDOUT);
}

// A round trip: one end must receive what the other end sends.
base::Result<void> Send(int from, int to, const std::string& bytes) {
  if (send(from, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return base::ErrnoError("nothing can be sent");
  }
  std::string got;
  std::array<char, 256> chunk;
  while (got.size() < bytes.size()) {
    if (const auto ready = WaitFor(to, POLLIN, "nothing arrives"); !ready) return ready.error();
    const ssize_t count = recv(to, chunk.data(), chunk.size(), 0);
    if (count < 0) return base::ErrnoError("nothing arrives");
    if (count == 0) return base::Error{"the connection was closed", ECONNRESET};
    got.append(chunk.data(), static_cast<std::size_t>(count));
  }
  if (got != bytes) return base::Error{"other bytes arrive than were sent", EIO};
  return {};
}

}  // namespace

std::vector<NetworkInterface> SystemCalls::Interfaces() const {
  std::vector<NetworkInterface> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_name == nullptr) continue;
    const std::string name = entry->ifa_name;
    auto known = std::find_if(interfaces.begin(), interfaces.end(), [&](const auto& one) { return one.name == name; });
    if (known == interfaces.end()) {
      NetworkInterface fresh;
      fresh.name = name;
      fresh.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      fresh.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      fresh.mtu = MtuOf(name);
      known = interfaces.insert(interfaces.end(), std::move(fresh));
    }
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    known->addresses.push_back(net::HostAddress(entry->ifa_addr, length).Numeric());
  }
  return interfaces;
}

std::string SystemCalls::HostName() const {
  return base::HostName();
}

base::Result<std::vector<std::string>> SystemCalls::Resolve(const std::string& name) const {
  const auto addresses = net::ResolveHost(name, 0);
  if (!addresses) return addresses.error();
  std::vector<std::string> numeric;
  for (const net::HostAddress& address : *addresses) numeric.push_back(address.Numeric());
  return numeric;
}

base::Result<void> SystemCalls::Echo(const std::string& address) const {
  const auto resolved = net::ResolveHost(address, 0);
  if (!resolved) return resolved.error();
  const auto listener = net::ListenOn(resolved->front());
  if (!listener) return listener.error();
  const auto client = net::BeginConnect(net::LocalEnd(listener->get()));
  if (!client) return client.error();
  if (const auto ready = WaitFor(listener->get(), POLLIN, "no connection arrives"); !ready) return ready.error();
  const base::UniqueFd server(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!server.valid()) return base::ErrnoError("no connection arrives");
  if (const auto ready = WaitFor(client->get(), POLLOUT, "the connection does not come about"); !ready) {
    return ready.error();
  }
  if (const int error = net::ConnectOutcome(client->get()); error != 0) {
    return base::ErrnoError("the connection does not come about", error);
  }
  if (const auto there = Send(client->get(), server.get(), "is anybody there?"); !there) return there.error();
  return Send(server.get(), client->get(), "yes");
}

base::Result<void> SystemCalls::TryPort(int port) const {
  const auto listener = net::ListenOn(net::HostAddress::Any(port));
  if (!listener) return listener.error();
  return {};
}

}  // namespace fulldeck::doctor
