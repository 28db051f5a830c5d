// Internet addresses and the sockets of the rendezvous: non-blocking, close-on-exec, the same for IPv4 and IPv6.
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

  // All interfaces: IPv6 and IPv4 together if the machine has IPv6, otherwise IPv4.
  static HostAddress Any(int port);

  std::string Numeric() const;   // "10.0.0.1", "fe80::1%eth0"; an IPv4-mapped IPv6 address is printed as IPv4
  std::string WithPort() const;  // "10.0.0.1:29500", "[::1]:29500"
  int port() const;
  bool IsLoopback() const;
  // Whether an interface of this machine has this address.
  bool IsOfThisHost() const;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

bool IsNumericAddress(const std::string& host);

// At least one. For a name, blocks as long as the machine's resolver takes; not for a numeric address.
base::Result<std::vector<HostAddress>> ResolveHost(const std::string& host, int port);

// The error keeps the error number: EADDRINUSE, EADDRNOTAVAIL, EACCES …
base::Result<base::UniqueFd> ListenOn(const HostAddress& address);

// Starts to connect. The socket becomes writable when that is done; ConnectOutcome then returns the error number, 0
// on success.
base::Result<base::UniqueFd> BeginConnect(const HostAddress& address);
int ConnectOutcome(int fd);

// Sends small messages immediately and retransmits lost packets soon. The kernel gives up well after `silence_limit`,
// so that our own timeout decides.
void TuneConnection(int fd, std::chrono::milliseconds silence_limit);

HostAddress LocalEnd(int fd);
HostAddress RemoteEnd(int fd);

}  // namespace fulldeck::net
