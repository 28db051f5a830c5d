// Detects dead members of a group. Used while waiting, never during data movement.
//
// A peer is watched through its pidfd, one per process for any number of groups. If its pid is not visible here
// (another pid namespace) or the kernel has no pidfds, it is watched through the connection of the rendezvous, which
// closes when the peer exits (not before children that the peer forked meanwhile, which inherit the connection). A rank
// that is a thread of this process is never dead.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"

namespace fulldeck::collectives {

// The pidfd of another process, shared by all its watchers. Immutable; thread safe.
class WatchedProcess;
// nullptr if the process does not exist or its pidfd cannot be opened. Watches the process that has `pid` now: a caller
// that got the pid from a connection must receive data on that connection afterwards to be sure that it is the right
// process.
std::shared_ptr<const WatchedProcess> WatchProcess(pid_t pid);

class PeerWatch {
 public:
  struct Peer {
    int rank = 0;
    pid_t pid = 0;  // as seen from here; 0: not visible
    base::UniqueFd connection;
    std::shared_ptr<const WatchedProcess> process;  // nullptr: opened by pid
    bool keep_connection = false;                   // the peer watches this process through it
  };

  // Keeps from each connection what it needs and closes the rest. `use_pidfd` = false is for tests of the fallback.
  explicit PeerWatch(std::vector<Peer> peers, bool use_pidfd = true);
  ~PeerWatch();
  PeerWatch(PeerWatch&&) noexcept;
  PeerWatch& operator=(PeerWatch&&) noexcept;

  // The dead ranks, in order. One poll without waiting. Thread safe.
  std::vector<int> Dead() const;
  // State of a peer, for messages: "pid 4242, stopped (SIGSTOP)", "pid 4242, running", "pid 4242, gone", "a process of
  // another pid namespace". Thread safe.
  std::string Describe(int rank) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same for a process that is not in a group (yet), in its current state.
std::string DescribeProcess(pid_t pid);

}  // namespace fulldeck::collectives
