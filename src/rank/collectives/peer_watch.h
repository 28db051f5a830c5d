// Who of the group is dead? Asked while waiting, never in the middle of moving data.
//
// A peer is watched through its pidfd, one a process however many groups there are; where its pid cannot be seen from
// here (another pid namespace) or the kernel has no pidfds, through the connection of the rendezvous, whose end is its
// end (not before the end of children that the peer forked meanwhile: they hold the connection too). A thread of this
// very process is never dead.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"

namespace fulldeck::collectives {

// The pidfd of one other process, shared by all that watch it. Immutable; any thread.
class WatchedProcess;
// nullptr where there is no such process or its pidfd cannot be had. It is the process that has `pid` now: whoever has
// the pid from a connection must hear from that connection afterwards to know that it is the right one.
std::shared_ptr<const WatchedProcess> WatchProcess(pid_t pid);

class PeerWatch {
 public:
  struct Peer {
    int rank = 0;
    pid_t pid = 0;  // as seen from here; 0: cannot be seen
    base::UniqueFd connection;
    std::shared_ptr<const WatchedProcess> process;  // nullptr: found by the pid
    bool keep_connection = false;                   // the peer watches this process through it
  };

  // Keeps of each connection what it needs, closes the rest. `use_pidfd` false is for tests of the other way.
  explicit PeerWatch(std::vector<Peer> peers, bool use_pidfd = true);
  ~PeerWatch();
  PeerWatch(PeerWatch&&) noexcept;
  PeerWatch& operator=(PeerWatch&&) noexcept;

  // The ranks that are dead, in order. One poll; no wait. Any thread.
  std::vector<int> Dead() const;
  // For a person who wonders why it does not come: "pid 4242, stopped (SIGSTOP)", "pid 4242, running", "pid 4242,
  // gone", "a process of another pid namespace". Any thread.
  std::string Describe(int rank) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same of a process that is in no group (yet), as it is now.
std::string DescribeProcess(pid_t pid);

}  // namespace fulldeck::collectives
