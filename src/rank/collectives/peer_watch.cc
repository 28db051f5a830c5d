#include "collectives/peer_watch.h"

#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "wire/process_identity.h"

namespace fulldeck::collectives {
namespace {

constexpr long kPidfdOpen = 434;  // the same on every architecture; missing from the headers of portable builds

int PollNow(std::vector<pollfd>& descriptors) {
  int count = 0;
  do {
    count = poll(descriptors.data(), descriptors.size(), 0);
  } while (count < 0 && errno == EINTR);
  return count;
}

// A pidfd is readable once its process has exited.
bool HasEnded(int pidfd) {
  std::vector<pollfd> one{{pidfd, POLLIN, 0}};
  return PollNow(one) > 0;
}

bool HasHungUp(int connection) {
  std::vector<pollfd> one{{connection, POLLRDHUP, 0}};
  return PollNow(one) > 0;
}

std::string DescribeState(pid_t pid, std::uint64_t start_ticks) {
  std::string text = "pid " + std::to_string(pid);
  const auto stat = wire::ReadProcessStat(pid);
  if (!stat || (start_ticks != 0 && stat->start_ticks != start_ticks)) return text + ", gone";
  switch (stat->state) {
    case 'T':
      return text + ", stopped (SIGSTOP)";
    case 't':
      return text + ", stopped by a debugger";
    case 'Z':
      return text + ", ended (a zombie)";
    case 'X':
      return text + ", gone";
    case 'D':
      return text + ", waiting in the kernel (for a disk or a driver)";
    default:
      return text + ", running";
  }
}

}  // namespace

class WatchedProcess {
 public:
  WatchedProcess(pid_t pid, std::uint64_t start_ticks, base::UniqueFd pidfd)
      : pid_(pid), start_ticks_(start_ticks), pidfd_(std::move(pidfd)) {}
  pid_t pid() const { return pid_; }
  std::uint64_t start_ticks() const { return start_ticks_; }  // 0: unknown
  int pidfd() const { return pidfd_.get(); }

 private:
  pid_t pid_;
  std::uint64_t start_ticks_;
  base::UniqueFd pidfd_;
};

namespace {

struct ProcessTable {
  std::mutex mutex;
  std::map<std::pair<pid_t, std::uint64_t>, std::weak_ptr<const WatchedProcess>> processes;
};
// Never destroyed: groups may outlive the static objects of a program. The fork handlers hold the lock during fork, so
// it is free in the child.
ProcessTable& Processes() {
  static ProcessTable* const table = [] {
    pthread_atfork([] { Processes().mutex.lock(); }, [] { Processes().mutex.unlock(); },
                   [] { Processes().mutex.unlock(); });
    return new ProcessTable;
  }();
  return *table;
}

}  // namespace

std::shared_ptr<const WatchedProcess> WatchProcess(pid_t pid) {
  if (pid <= 0) return nullptr;
  ProcessTable& table = Processes();
  const std::lock_guard lock(table.mutex);
  std::erase_if(table.processes, [](const auto& entry) { return entry.second.expired(); });
  const auto identity = wire::IdentityOf(pid);
  const std::uint64_t start_ticks = identity ? identity->start_ticks : 0;
  // The key includes the start time, so a reused pid gets its own entry.
  auto& entry = table.processes[{pid, start_ticks}];
  // Without start times (a hidden /proc) the key is only the pid: an entry whose process has exited must not be used
  // for the next process with that pid.
  if (auto known = entry.lock(); known && !HasEnded(known->pidfd())) return known;
  base::UniqueFd pidfd(static_cast<int>(syscall(kPidfdOpen, pid, 0U)));
  if (!pidfd.valid()) return nullptr;
  auto process = std::make_shared<const WatchedProcess>(pid, start_ticks, std::move(pidfd));
  entry = process;
  return process;
}

struct PeerWatch::Impl {
  struct Entry {
    pid_t pid = 0;
    bool is_this_process = false;
    std::shared_ptr<const WatchedProcess> process;
    base::UniqueFd connection;
  };
  // Invariant: watched[i] belongs to ranks[i]. Both are filled by the constructor and never change, which is why Dead()
  // needs no lock.
  std::map<int, Entry> entries;  // by rank
  std::vector<int> ranks;        // of the descriptors below
  std::vector<pollfd> watched;
};

PeerWatch::PeerWatch(std::vector<Peer> peers, bool use_pidfd) : impl_(std::make_unique<Impl>()) {
  for (Peer& peer : peers) {
    Impl::Entry entry;
    entry.pid = peer.pid;
    entry.is_this_process = peer.pid == getpid();
    const bool from_rendezvous = peer.process != nullptr;
    if (use_pidfd && !entry.is_this_process) {
      entry.process = peer.process ? std::move(peer.process) : WatchProcess(peer.pid);
      // The pid may have been reused before the pidfd was opened. If the connection is still open after that, the peer
      // was alive when its pidfd was opened, so the pidfd is the peer's.
      if (!from_rendezvous && HasHungUp(peer.connection.get())) entry.process = nullptr;
    }
    const bool by_connection = !entry.is_this_process && !entry.process;
    if (by_connection || peer.keep_connection) entry.connection = std::move(peer.connection);
    impl_->entries.insert_or_assign(peer.rank, std::move(entry));
  }
  for (const auto& [rank, entry] : impl_->entries) {
    if (entry.process) {
      impl_->watched.push_back({entry.process->pidfd(), POLLIN, 0});
    } else if (!entry.is_this_process) {
      // Only the end matters, not what a peer might still send. For a negative descriptor poll reports nothing, so such
      // a peer is never reported as dead.
      impl_->watched.push_back({entry.connection.get(), POLLRDHUP, 0});
    } else {
      continue;
    }
    impl_->ranks.push_back(rank);
  }
}

PeerWatch::~PeerWatch() = default;
PeerWatch::PeerWatch(PeerWatch&&) noexcept = default;
PeerWatch& PeerWatch::operator=(PeerWatch&&) noexcept = default;

std::vector<int> PeerWatch::Dead() const {
  // An exited process never becomes alive again and a closed connection stays closed, so a rank that is reported once
  // is reported by every later call. A poll error reports no one: a wait then ends at its timeout.
  std::vector<int> dead;
  std::vector<pollfd> watched = impl_->watched;
  if (PollNow(watched) <= 0) return dead;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (watched[i].revents != 0) dead.push_back(impl_->ranks[i]);
  }
  return dead;
}

std::string PeerWatch::Describe(int rank) const {
  const auto found = impl_->entries.find(rank);
  if (found == impl_->entries.end()) return "no member of this group";
  const Impl::Entry& entry = found->second;
  const std::vector<int> dead = Dead();
  const bool is_dead = std::find(dead.begin(), dead.end(), rank) != dead.end();
  if (entry.pid == 0)
    return is_dead ? "a process of another pid namespace, gone" : "a process of another pid namespace";
  if (is_dead) return "pid " + std::to_string(entry.pid) + ", gone";
  return DescribeState(entry.pid, entry.process ? entry.process->start_ticks() : 0);
}

std::string DescribeProcess(pid_t pid) {
  return pid == 0 ? "a process of another pid namespace" : DescribeState(pid, 0);
}

}  // namespace fulldeck::collectives
