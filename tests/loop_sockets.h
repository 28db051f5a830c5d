// An event loop that runs until a condition holds, and sockets on loopback.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/files/unique_fd.h"

namespace fulldeck::testing {

// Runs the loop until the condition holds; gives up after a time that no healthy machine needs.
template <typename Condition>
bool RunUntil(base::EventLoop& loop, Condition condition, base::Duration timeout = std::chrono::seconds(30)) {
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + timeout;
  while (!condition()) {
    const base::Duration left = deadline - base::SteadyClock::Instance().Now();
    if (left <= base::Duration(0)) return false;
    loop.RunOnce(left);
  }
  return true;
}

// The same for a condition that depends on a socket outside the loop.
template <typename Condition>
bool PollUntil(base::EventLoop& loop, Condition condition, base::Duration timeout = std::chrono::seconds(30)) {
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + timeout;
  while (!condition()) {
    if (base::SteadyClock::Instance().Now() > deadline) return false;
    loop.RunOnce(std::chrono::milliseconds(2));
  }
  return true;
}

// Runs the loop for a period in which something must not happen.
inline void RunFor(base::EventLoop& loop, base::Duration time) {
  RunUntil(
      loop, [] { return false; }, time);
}

inline sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

inline base::UniqueFd ListenOnLoopback(int port, int& bound_port) {
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = Loopback(port);
  socklen_t length = sizeof address;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd.get(), 16) != 0) return {};
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  bound_port = ntohs(address.sin_port);
  return fd;
}

inline int FreePort() {
  int port = 0;
  ListenOnLoopback(0, port);
  return port;
}

// A blocking connection to a port of this machine.
inline base::UniqueFd ConnectTo(int port) {
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return fd;
}

}  // namespace fulldeck::testing
