// Abstract Unix sockets that carry packets and descriptors. Nothing here blocks, and every descriptor is close-on-exec.
// Stateless; thread safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::collectives {

// The name is free again when the descriptor is closed. EADDRINUSE: another process has it.
base::Result<base::UniqueFd> ListenAt(const std::string& address, int backlog);
// ECONNREFUSED: no process listens there yet. EAGAIN: its queue is full.
base::Result<base::UniqueFd> ConnectTo(const std::string& address);
// EAGAIN: no connection is pending.
base::Result<base::UniqueFd> AcceptFrom(int listener);

// The process at the other end, as recorded by the kernel when it connected or listened.
struct SocketPeer {
  pid_t pid = 0;  // 0: not visible from this pid namespace
  uid_t uid = static_cast<uid_t>(-1);
};
SocketPeer PeerOf(int socket);

// False if the other end is gone (or has not read what was sent before).
bool SendPacket(int socket, std::string_view bytes, std::span<const int> descriptors = {});

struct ReceivedPacket {
  enum class Kind : std::uint8_t { kNothingYet, kPacket, kEnd } kind = Kind::kNothingYet;
  std::string bytes;
  std::vector<base::UniqueFd> descriptors;
  bool descriptors_cut = false;  // more were sent than were received
};
// A packet longer than `longest` is returned as an empty one. At most `most_descriptors` are taken; any others are
// never installed in this process, or are closed.
ReceivedPacket ReceivePacket(int socket, std::size_t longest, std::size_t most_descriptors);

// Ends the connection for the peer immediately, even if a child that was forked meanwhile has a copy of it.
void HangUp(base::UniqueFd& socket);

}  // namespace fulldeck::collectives
