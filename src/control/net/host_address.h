// Internet addresses of hosts, and the sockets that launchers meet on: non-blocking, closed on exec, IPv4 and IPv6
// alike.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::net {

// Address and port. A plain value.
class HostAddress {
 public:
  HostAddress() = default;
  HostAddress(const sockaddr* address, socklen_t length);

  // All interfaces: IPv6 and IPv4 together where the machine has IPv6, else IPv4.
  static HostAddress Any(int port);

  std::string Numeric() const;   // "10.0.0.1", "fe80::1%eth0"; an IPv4 address that came through IPv6 is plain IPv4
  std::string WithPort() const;  // "10.0.0.1:29500", "[::1]:29500"
  int port() const;
  bool IsLoopback() const;
  // Whether an interface of this host has it.
  bool IsOfThisHost() const;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

bool IsNumericAddress(const std::string& host);

// At least one. Blocks for a name, as long as the resolver of this machine takes; not for a numeric address.
base::Result<std::vector<HostAddress>> ResolveHost(const std::string& host, int port);

// The error keeps the number: EADDRINUSE, EADDRNOTAVAIL, EACCES …
base::Result<base::UniqueFd> ListenOn(const HostAddress& address);

// Begun, not finished: the socket is writable when it is, and ConnectOutcome says how. 0 is success.
base::Result<base::UniqueFd> BeginConnect(const HostAddress& address);
int ConnectOutcome(int fd);

// Small messages leave at once and lost packets are sent again soon; the kernel gives up well after `silence_limit`, so
// that our own clock decides.
void TuneConnection(int fd, std::chrono::milliseconds silence_limit);

HostAddress LocalEnd(int fd);
HostAddress RemoteEnd(int fd);

}  // namespace fulldeck::net
