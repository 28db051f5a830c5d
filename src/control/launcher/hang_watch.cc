#include "launcher/hang_watch.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "launcher/process_tree.h"

namespace fulldeck::launcher {
namespace {

using base::Duration;
using diagnosis::ProcessSample;
using diagnosis::RankLife;
using diagnosis::RankNow;

// Walking all of /proc costs a few milliseconds.
constexpr Duration kWalkInterval = std::chrono::seconds(1);

std::uint64_t Number(const std::vector<std::string_view>& fields, std::size_t index) {
  return index < fields.size() ? base::ParseInteger<std::uint64_t>(fields[index]).value_or(0) : 0;
}

Duration Ticks(std::uint64_t ticks) {
  static const long per_second = std::max(1L, sysconf(_SC_CLK_TCK));
  return Duration(static_cast<std::int64_t>(ticks) * (1'000'000'000 / per_second));
}

// Adds the CPU time of all threads and of reaped children, and the state of the main thread.
bool AddStat(const base::SystemRoot& root, const std::string& folder, ProcessSample& sample, bool is_rank) {
  const auto text = root.ReadFile(folder + "/stat", 4096);
  if (!text) return false;
  // The name in parentheses may contain any character, including parentheses.
  const auto bracket = text->rfind(") ");
  if (bracket == std::string::npos) return false;
  const std::vector<std::string_view> fields = base::Split(std::string_view(*text).substr(bracket + 2), ' ');
  constexpr std::size_t kMinorFaults = 7, kMajorFaults = 9, kUser = 11, kSystem = 12, kChildUser = 13,
                        kChildSystem = 14;
  if (is_rank && !fields.empty() && !fields[0].empty()) sample.state = fields[0][0];
  sample.page_faults += Number(fields, kMinorFaults) + Number(fields, kMajorFaults);
  sample.cpu += Ticks(Number(fields, kUser) + Number(fields, kSystem));
  if (is_rank) sample.cpu += Ticks(Number(fields, kChildUser) + Number(fields, kChildSystem));
  return true;
}

std::uint64_t IoOf(const base::SystemRoot& root, const std::string& folder) {
  const auto text = root.ReadFile(folder + "/io", 4096);
  std::uint64_t bytes = 0;
  if (!text) return 0;
  for (const std::string_view line : base::Split(*text, '\n')) {
    if (!line.starts_with("rchar: ") && !line.starts_with("wchar: ")) continue;
    bytes += base::ParseInteger<std::uint64_t>(line.substr(7)).value_or(0);
  }
  return bytes;
}

void AddStatus(const base::SystemRoot& root, const std::string& folder, ProcessSample& sample) {
  const auto text = root.ReadFile(folder + "/status", 16384);
  if (!text) return;
  for (const std::string_view line : base::Split(*text, '\n')) {
    constexpr std::string_view kTracer = "TracerPid:", kSwitches = "voluntary_ctxt_switches:";
    if (line.starts_with(kTracer)) sample.traced = base::Trim(line.substr(kTracer.size())) != "0";
    if (line.starts_with(kSwitches)) {
      sample.switches = base::ParseInteger<std::uint64_t>(base::Trim(line.substr(kSwitches.size()))).value_or(0);
    }
  }
}

// `process`: "/proc/4711"; `task`: the folder of the thread, or of the process for its main thread.
diagnosis::ThreadWait WaitOf(const base::SystemRoot& root, const std::string& process, const std::string& task,
                             char state) {
  return diagnosis::ClassifyWait(
      root.ReadLine(task + "/syscall").value_or(""), root.ReadLine(task + "/wchan").value_or(""), state,
      [&](int fd) { return root.ReadLink(process + "/fd/" + std::to_string(fd)).value_or(""); });
}

char StateOf(const base::SystemRoot& root, const std::string& task) {
  const auto text = root.ReadLine(task + "/stat");
  const auto bracket = text ? text->rfind(") ") : std::string::npos;
  return bracket == std::string::npos || bracket + 2 >= text->size() ? '?' : (*text)[bracket + 2];
}

// Argument `index` of the system call that a thread is in.
std::uint64_t ArgumentOf(const std::vector<std::string_view>& syscall, std::size_t index) {
  if (index + 1 >= syscall.size()) return 0;
  std::string_view word = syscall[index + 1];
  if (word.starts_with("0x")) word.remove_prefix(2);
  return base::ParseInteger<std::uint64_t>(word, 16).value_or(0);
}

// The TCP connections that a process can see. Read on first use.
class Connections {
 public:
  Connections(const base::SystemRoot& root, std::string process) : root_(root), process_(std::move(process)) {}

  // Whether a descriptor of that process is a TCP connection that is established or being established.
  bool Has(int descriptor) {
    const std::string link = root_.ReadLink(process_ + "/fd/" + std::to_string(descriptor)).value_or("");
    constexpr std::string_view kSocket = "socket:[";
    if (!link.starts_with(kSocket)) return false;
    if (!inodes_) Read();
    return inodes_->contains(link.substr(kSocket.size(), link.size() - kSocket.size() - 1));
  }

 private:
  void Read() {
    constexpr std::size_t kMost = std::size_t{4} << 20;
    constexpr std::size_t kState = 3, kInode = 9;
    inodes_.emplace();
    for (const char* table : {"/net/tcp", "/net/tcp6"}) {
      const auto text = root_.ReadFile(process_ + table, kMost);
      if (!text) continue;
      for (const std::string_view line : base::Split(*text, '\n')) {
        std::vector<std::string_view> fields = base::Split(line, ' ');
        std::erase(fields, std::string_view());
        if (fields.size() <= kInode || (fields[kState] != "01" && fields[kState] != "02")) continue;
        inodes_->emplace(fields[kInode]);
      }
    }
  }

  const base::SystemRoot& root_;
  std::string process_;
  std::optional<std::set<std::string, std::less<>>> inodes_;
};

// The descriptors that epoll_wait or poll watches; empty if they cannot be read.
std::vector<int> WatchedDescriptors(const base::SystemRoot& root, const std::string& process, pid_t pid,
                                    const std::vector<std::string_view>& syscall, std::string_view call) {
  constexpr std::size_t kMost = 256;
  std::vector<int> watched;
  if (call.starts_with("epoll")) {
    const auto text = root.ReadFile(process + "/fdinfo/" + std::to_string(ArgumentOf(syscall, 0)), 65536);
    if (!text) return watched;
    for (const std::string_view line : base::Split(*text, '\n')) {
      constexpr std::string_view kWatched = "tfd:";
      if (!line.starts_with(kWatched) || watched.size() >= kMost) continue;
      const std::string_view rest = base::Trim(line.substr(kWatched.size()));
      const auto descriptor = base::ParseInteger<int>(rest.substr(0, rest.find(' ')));
      if (descriptor) watched.push_back(*descriptor);
    }
  } else if (call.ends_with("poll") && root.is_machine()) {
    std::array<pollfd, kMost> entries{};
    const std::size_t count = std::min<std::size_t>(ArgumentOf(syscall, 1), kMost);
    const iovec here{entries.data(), count * sizeof(pollfd)};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in the other process
    const iovec there{reinterpret_cast<void*>(ArgumentOf(syscall, 0)), here.iov_len};
    if (count == 0 || process_vm_readv(pid, &here, 1, &there, 1, 0) != static_cast<ssize_t>(here.iov_len))
      return watched;
    for (std::size_t i = 0; i < count; ++i) watched.push_back(entries[i].fd);
  }
  return watched;
}

// Whether the thread waits for a TCP connection, possibly among other descriptors.
bool WaitsForAConnection(const base::SystemRoot& root, const std::string& process, pid_t pid, const std::string& task,
                         const diagnosis::ThreadWait& wait, Connections& connections) {
  if (wait.kind != diagnosis::WaitKind::kIo) return false;
  const std::string line = root.ReadLine(task + "/syscall").value_or("");
  const std::vector<std::string_view> words = base::Split(line, ' ');
  if (wait.on == "socket") return connections.Has(static_cast<int>(ArgumentOf(words, 0)));
  const std::vector<int> watched = WatchedDescriptors(root, process, pid, words, wait.call);
  return std::any_of(watched.begin(), watched.end(), [&](int descriptor) { return connections.Has(descriptor); });
}

// Whether a thread that the main thread may wait for is in I/O. Event loops and servers always wait, whatever the
// program does; such a thread counts only if it has a connection, as the loop of an asynchronous upload does.
bool IsWorkerInIo(const base::SystemRoot& root, const std::string& process, pid_t pid, const std::string& task,
                  const diagnosis::ThreadWait& wait, Connections& connections) {
  if (wait.kind != diagnosis::WaitKind::kIo || wait.call.starts_with("accept")) return false;
  return !wait.call.starts_with("epoll") || WaitsForAConnection(root, process, pid, task, wait, connections);
}

constexpr std::size_t kMaxThreads = 256;

void AddThreads(const base::SystemRoot& root, const std::string& folder, pid_t pid, ProcessSample& sample) {
  const std::vector<std::string> threads = root.List(folder + "/task");
  Connections connections(root, folder);
  sample.all_in_locks = sample.wait.kind == diagnosis::WaitKind::kLock && threads.size() <= kMaxThreads;
  std::size_t visited = 0;
  for (const std::string& thread : threads) {
    if (thread == std::to_string(pid)) continue;
    if (++visited > kMaxThreads) break;
    const std::string task = folder + "/task/" + thread;
    if (diagnosis::ServesCommunication(root.ReadLine(task + "/comm").value_or(""))) continue;
    const diagnosis::ThreadWait wait = WaitOf(root, folder, task, StateOf(root, task));
    sample.all_in_locks = sample.all_in_locks && wait.kind == diagnosis::WaitKind::kLock;
    sample.a_worker_in_io = sample.a_worker_in_io ||
                            (sample.wait.call == "futex" && IsWorkerInIo(root, folder, pid, task, wait, connections));
  }
}

// Whether a child does I/O that the main thread, given its own wait, may be waiting for.
bool IsChildInIo(const base::SystemRoot& root, pid_t child, const diagnosis::ThreadWait& main) {
  using diagnosis::WaitKind;
  // As in subprocess.run of a program that copies a checkpoint to remote storage.
  const bool waited_for = main.call == "wait4" || main.call == "waitid";
  // With a timeout, Python's subprocess sleeps between polls of the child; other programs wait for it in a thread. But
  // idle data loader workers always wait for a pipe, so only connections count.
  if (!waited_for && main.kind != WaitKind::kSleep && main.kind != WaitKind::kLock) return false;
  const std::string folder = "/proc/" + std::to_string(child);
  Connections connections(root, folder);
  std::size_t visited = 0;
  for (const std::string& thread : root.List(folder + "/task")) {
    if (++visited > kMaxThreads) break;
    const std::string task = folder + "/task/" + thread;
    const diagnosis::ThreadWait wait = WaitOf(root, folder, task, StateOf(root, task));
    if (wait.kind != WaitKind::kIo || diagnosis::ServesCommunication(root.ReadLine(task + "/comm").value_or(""))) {
      continue;
    }
    const bool its_main_thread = thread == std::to_string(child);
    if (waited_for ? its_main_thread || IsWorkerInIo(root, folder, child, task, wait, connections)
                   : WaitsForAConnection(root, folder, child, task, wait, connections)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<ProcessSample> SampleProcess(const base::SystemRoot& root, pid_t pid,
                                           const std::vector<pid_t>& descendants, bool with_threads) {
  ProcessSample sample;
  const std::string folder = "/proc/" + std::to_string(pid);
  if (!AddStat(root, folder, sample, true)) return std::nullopt;
  // Time spent waiting for a CPU counts as CPU time: the thread is runnable, however long the queue is. Kernels without
  // schedstat do not separate the main thread from the others; then the time of the whole process is used for it.
  sample.main_thread = sample.cpu;
  if (const auto line = root.ReadLine(folder + "/schedstat")) {
    const std::vector<std::string_view> figures = base::Split(*line, ' ');
    const Duration queued(static_cast<std::int64_t>(Number(figures, 1)));
    sample.cpu += queued;
    sample.main_thread = Duration(static_cast<std::int64_t>(Number(figures, 0))) + queued;
  }
  sample.io_bytes = IoOf(root, folder);
  AddStatus(root, folder, sample);
  sample.place = base::Printable(root.ReadLine(folder + "/wchan").value_or(""));
  if (sample.place == "0") sample.place.clear();
  sample.exact_place = root.ReadLine(folder + "/syscall").value_or(sample.place);
  sample.wait = WaitOf(root, folder, folder, sample.state);
  if (with_threads) AddThreads(root, folder, pid, sample);
  for (const pid_t child : descendants) {
    const std::string its_folder = "/proc/" + std::to_string(child);
    if (!AddStat(root, its_folder, sample, false)) continue;
    sample.io_bytes += IoOf(root, its_folder);
    sample.a_worker_in_io = sample.a_worker_in_io || (with_threads && IsChildInIo(root, child, sample.wait));
  }
  return sample;
}

std::optional<diagnosis::CallSeen> LatestCall(const wire::RankBoard& board, int local_rank) {
  std::optional<wire::Collective> latest;
  for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
    const auto call = board.ReadCollective(local_rank, slot);
    if (call && call->sequence > 0 && (!latest || call->since_ns > latest->since_ns)) latest = call;
  }
  if (!latest) return std::nullopt;
  return diagnosis::CallSeen{latest->name,     latest->group, latest->sequence, latest->operation,
                             latest->datatype, latest->count, latest->bytes};
}

std::vector<RankNow> HangWatch::ReadRanks() const {
  const wire::RankBoard& board = group_.board();
  std::vector<RankNow> ranks;
  ranks.reserve(group_.ranks().size());
  for (const Rank& rank : group_.ranks()) {
    RankNow now;
    if (rank.exit_status) {
      now.life = rank.exit_status->exit_status.ok() ? RankLife::kEnded : RankLife::kFailed;
    } else if (rank.stopped) {
      now.life = RankLife::kStopped;
    }
    now.loop = board.ReadLoop(rank.local_rank);
    now.card_worked = card_worked_(rank.local_rank);
    for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
      auto call = board.ReadCollective(rank.local_rank, slot);
      if (call) now.groups.push_back(std::move(*call));
    }
    ranks.push_back(std::move(now));
  }
  return ranks;
}

void HangWatch::AddProcesses(std::vector<RankNow>& ranks, base::TimePoint now) {
  if (now - walked_ >= kWalkInterval) {
    walked_ = now;
    descendants_.assign(ranks.size(), {});
    const std::vector<TreeProcess> all = Descendants(getpid());
    for (const Rank& rank : group_.ranks()) {
      // The walk lists parents before their children.
      std::vector<pid_t> own = {rank.pid};
      for (const TreeProcess& process : all) {
        if (std::find(own.begin(), own.end(), process.parent) != own.end()) own.push_back(process.pid);
      }
      own.erase(own.begin());
      descendants_[static_cast<std::size_t>(rank.local_rank)] = std::move(own);
    }
  }
  for (const Rank& rank : group_.ranks()) {
    if (rank.exit_status || rank.pid <= 0) continue;
    const auto index = static_cast<std::size_t>(rank.local_rank);
    const std::vector<int>& awaited = judge_.WantsThreadsOf();
    const bool with_threads = std::find(awaited.begin(), awaited.end(), rank.local_rank) != awaited.end();
    ranks[index].process = SampleProcess(root_, rank.pid, descendants_[index], with_threads);
  }
}

diagnosis::HangVerdict HangWatch::Poll(base::TimePoint now) {
  std::vector<RankNow> ranks = ReadRanks();
  if (judge_.WantsProcesses()) AddProcesses(ranks, now);

  std::vector<std::optional<diagnosis::WaitingNow>> waiting;
  for (const RankNow& rank : ranks) {
    auto& own = waiting.emplace_back();
    for (const wire::Collective& call : rank.groups) {
      if (rank.life != RankLife::kThere || call.operation == FULLDECK_BOARD_MEETING) continue;
      if (!own) own.emplace();
      own->sampled = own->sampled || diagnosis::IsRecorded(call.name);
      own->waited += Duration(static_cast<std::int64_t>(call.waited_ns));
      if (!rank.loop || rank.loop->step == 0) own->steps = std::max(own->steps, call.completed);
    }
    if (own && rank.loop && rank.loop->step > 0) own->steps = rank.loop->step;
  }
  if (const auto found = stragglers_.Judge(now, waiting)) new_straggler_ = found;
  return judge_.Judge(now, ranks);
}

std::optional<diagnosis::HangVerdict> HangWatch::FindDesync(base::TimePoint now) {
  std::vector<RankNow> ranks = ReadRanks();
  for (const Rank& rank : group_.ranks()) {
    ranks[static_cast<std::size_t>(rank.local_rank)].sent_too_much = WasSentTooMuch(rank);
  }
  return judge_.Differing(now, ranks);
}

}  // namespace fulldeck::launcher
