#include "net/host_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text.h"

namespace fulldeck::net {
namespace {

constexpr int kBacklog = 1024;

const in6_addr* AsIpv6(const sockaddr* address) {
  return address->sa_family == AF_INET6 ? &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr : nullptr;
}

// The four bytes in network order, also of an IPv4-mapped IPv6 address.
const std::uint8_t* Ipv4Bytes(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  const in6_addr* ipv6 = AsIpv6(address);
  return ipv6 != nullptr && IN6_IS_ADDR_V4MAPPED(ipv6) ? ipv6->s6_addr + 12 : nullptr;
}

bool SameHost(const sockaddr* one, const sockaddr* other) {
  const std::uint8_t* one_ipv4 = Ipv4Bytes(one);
  const std::uint8_t* other_ipv4 = Ipv4Bytes(other);
  if (one_ipv4 != nullptr && other_ipv4 != nullptr) return std::memcmp(one_ipv4, other_ipv4, 4) == 0;
  const in6_addr* one_ipv6 = AsIpv6(one);
  const in6_addr* other_ipv6 = AsIpv6(other);
  return one_ipv6 != nullptr && other_ipv6 != nullptr && std::memcmp(one_ipv6, other_ipv6, sizeof *one_ipv6) == 0;
}

void SetOption(int fd, int level, int option, int value) {
  // Each option is an improvement; none is required.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof value));
}

base::Result<base::UniqueFd> OpenSocket(int family) {
  base::UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd.valid()) return base::ErrnoError("cannot make a socket");
  return fd;
}

base::Result<std::vector<HostAddress>> CallResolver(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return base::Error{"the host name " + base::Printable(host) + " cannot be looked up: " + gai_strerror(error)};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  std::vector<HostAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  if (addresses.empty()) return base::Error{"the host name " + base::Printable(host) + " has no internet address"};
  return addresses;
}

template <typename GetName>
HostAddress EndOf(int fd, GetName get_name) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return get_name(fd, address, &length) == 0 ? HostAddress(address, length) : HostAddress();
}

}  // namespace

HostAddress::HostAddress(const sockaddr* address, socklen_t length)
    : length_(std::min(length, static_cast<socklen_t>(sizeof storage_))) {
  std::memcpy(&storage_, address, length_);
}

HostAddress HostAddress::Any(int port) {
  const auto ipv6 = OpenSocket(AF_INET6);
  if (ipv6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
}

std::string HostAddress::Numeric() const {
  if (length_ == 0) return "unknown";
  if (const std::uint8_t* bytes = Ipv4Bytes(get())) {
    return std::to_string(bytes[0]) + "." + std::to_string(bytes[1]) + "." + std::to_string(bytes[2]) + "." +
           std::to_string(bytes[3]);
  }
  char text[NI_MAXHOST];
  if (getnameinfo(get(), length_, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "unknown";
  return text;
}

std::string HostAddress::WithPort() const {
  const std::string host = Numeric();
  const std::string port_text = std::to_string(port());
  return host.find(':') == std::string::npos ? host + ":" + port_text : "[" + host + "]:" + port_text;
}

int HostAddress::port() const {
  if (length_ == 0) return 0;
  return ntohs(get()->sa_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port
                                            : reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

bool HostAddress::IsLoopback() const {
  if (length_ == 0) return false;
  if (const std::uint8_t* bytes = Ipv4Bytes(get())) return bytes[0] == 127;
  const in6_addr* ipv6 = AsIpv6(get());
  return ipv6 != nullptr && IN6_IS_ADDR_LOOPBACK(ipv6);
}

bool HostAddress::IsOfThisHost() const {
  if (length_ == 0) return false;
  if (IsLoopback()) return true;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && SameHost(entry->ifa_addr, get())) return true;
  }
  return false;
}

bool IsNumericAddress(const std::string& host) {
  return CallResolver(host, 0, AI_NUMERICHOST).ok();
}

base::Result<std::vector<HostAddress>> ResolveHost(const std::string& host, int port) {
  auto numeric = CallResolver(host, port, AI_NUMERICHOST);
  return numeric ? std::move(numeric) : CallResolver(host, port, 0);
}

base::Result<base::UniqueFd> ListenOn(const HostAddress& address) {
  auto fd = OpenSocket(address.get()->sa_family);
  if (!fd) return fd;
  SetOption(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.get()->sa_family == AF_INET6) SetOption(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // Two sockets that bind at the same time both succeed, but only one of them can listen.
  if (bind(fd->get(), address.get(), address.length()) != 0 || listen(fd->get(), kBacklog) != 0) {
    return base::ErrnoError("cannot listen on " + address.WithPort());
  }
  return fd;
}

base::Result<base::UniqueFd> BeginConnect(const HostAddress& address) {
  auto fd = OpenSocket(address.get()->sa_family);
  if (!fd) return fd;
  if (connect(fd->get(), address.get(), address.length()) != 0 && errno != EINPROGRESS) {
    return base::ErrnoError("cannot connect to " + address.WithPort());
  }
  return fd;
}

int ConnectOutcome(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  if (error != 0) return error;
  // A socket that connects to a free port of its own machine can be assigned that same port and connect to itself.
  const HostAddress local = LocalEnd(fd);
  const HostAddress remote = RemoteEnd(fd);
  if (remote.length() == 0) return ENOTCONN;
  return local.WithPort() == remote.WithPort() ? ECONNREFUSED : 0;
}

void TuneConnection(int fd, std::chrono::milliseconds silence_limit) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(3 * silence_limit.count()));
}

HostAddress LocalEnd(int fd) {
  return EndOf(fd, getsockname);
}

HostAddress RemoteEnd(int fd) {
  return EndOf(fd, getpeername);
}

}  // namespace fulldeck::net
