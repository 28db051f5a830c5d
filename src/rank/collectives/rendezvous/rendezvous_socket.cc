#include "collectives/rendezvous/rendezvous_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace fulldeck::collectives {
namespace {

constexpr std::size_t kMaxDescriptors = 4;

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit AbstractAddress(const std::string& name) {
    FULLDECK_CHECK(name.size() + 1 < sizeof address.sun_path);
    address.sun_family = AF_UNIX;
    // The leading zero byte makes it abstract: not a file, and local to this network namespace.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

base::UniqueFd NewSocket() {
  return base::UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

base::Result<base::UniqueFd> ListenAt(const std::string& address, int backlog) {
  base::UniqueFd socket = NewSocket();
  if (!socket.valid()) return base::ErrnoError("cannot make a Unix socket");
  const AbstractAddress where(address);
  if (bind(socket.get(), where.get(), where.length) != 0) return base::ErrnoError("cannot take the Unix address");
  if (listen(socket.get(), backlog) != 0) return base::ErrnoError("cannot listen on a Unix socket");
  return socket;
}

base::Result<base::UniqueFd> ConnectTo(const std::string& address) {
  base::UniqueFd socket = NewSocket();
  if (!socket.valid()) return base::ErrnoError("cannot make a Unix socket");
  const AbstractAddress where(address);
  if (connect(socket.get(), where.get(), where.length) != 0) return base::ErrnoError("cannot connect to a Unix socket");
  return socket;
}

base::Result<base::UniqueFd> AcceptFrom(int listener) {
  int socket = -1;
  do {
    socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  } while (socket < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (socket < 0) return base::ErrnoError("cannot accept a connection");
  return base::UniqueFd(socket);
}

SocketPeer PeerOf(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return {};
  return {credentials.pid, credentials.uid};
}

bool SendPacket(int socket, std::string_view bytes, std::span<const int> descriptors) {
  FULLDECK_CHECK(descriptors.size() <= kMaxDescriptors);
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

ReceivedPacket ReceivePacket(int socket, std::size_t longest, std::size_t most_descriptors) {
  FULLDECK_CHECK(most_descriptors <= kMaxDescriptors);
  ReceivedPacket received;
  received.bytes.resize(longest);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  msghdr message{};
  ssize_t got = 0;
  bool was_reset = false;
  while (true) {
    iovec part{received.bytes.data(), received.bytes.size()};
    message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (most_descriptors > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(most_descriptors * sizeof(int));
    }
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got >= 0) break;
    // Reported once, before the packets still in the queue, if the other end closed without reading everything.
    const bool first_reset = errno == ECONNRESET && !std::exchange(was_reset, true);
    if (errno != EINTR && !first_reset) break;
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    received.bytes.clear();
    return received;
  }
  if (got > 0 && most_descriptors > 0) {
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(head) + i * sizeof(int), sizeof descriptor);
        received.descriptors.emplace_back(descriptor);
      }
    }
    received.descriptors_cut = (message.msg_flags & MSG_CTRUNC) != 0 || received.descriptors.size() > most_descriptors;
    if (received.descriptors.size() > most_descriptors) received.descriptors.resize(most_descriptors);
  }
  const bool whole = got > 0 && (message.msg_flags & MSG_TRUNC) == 0;
  received.kind = got > 0 ? ReceivedPacket::Kind::kPacket : ReceivedPacket::Kind::kEnd;
  received.bytes.resize(whole ? static_cast<std::size_t>(got) : 0);
  return received;
}

void HangUp(base::UniqueFd& socket) {
  if (!socket.valid()) return;
  shutdown(socket.get(), SHUT_RDWR);
  socket.Reset();
}

}  // namespace fulldeck::collectives
