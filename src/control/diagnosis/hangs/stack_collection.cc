#include "diagnosis/hangs/stack_collection.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/files/open_without_links.h"
#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/text.h"

namespace fulldeck::diagnosis {
namespace {

using std::chrono::milliseconds;

// The same numbers on every architecture; older headers lack the names.
constexpr long kPidfdSendSignal = 424;
constexpr long kPidfdOpen = 434;
// Poll interval for files and processes while answers are pending.
constexpr milliseconds kPollInterval{10};
// If the kernel has blocked all threads of a rank for this long, it will not answer.
constexpr milliseconds kHeldLongEnough{250};
constexpr off_t kMaxRead = 8 << 20;

std::uint32_t NewRequest() {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
    number = static_cast<std::uint32_t>(base::SteadyClock::Instance().Now().time_since_epoch().count());
  }
  number &= 0x7fffffff;
  return number != 0 ? number : 1;
}

// Refers to a process without the risk of pid reuse between check and signal, if the kernel supports pidfds.
class Handle {
 public:
  Handle() = default;
  explicit Handle(const wire::ProcessIdentity& process)
      : process_(process), pidfd_(static_cast<int>(syscall(kPidfdOpen, process.pid, 0U))) {}

  // Returns 0 or an errno. `request`: sent with the signal; nullopt: a plain signal.
  int Send(int signal_number, std::optional<std::uint32_t> request) const {
    if (process_.pid <= 1 || process_.start_ticks == 0 || !wire::IsAlive(process_)) return ESRCH;
    siginfo_t info{};
    info.si_signo = signal_number;
    info.si_code = request ? SI_QUEUE : SI_USER;
    info.si_pid = getpid();
    info.si_uid = getuid();
    if (request) info.si_value.sival_int = static_cast<int>(*request);
    if (pidfd_.valid()) {
      if (syscall(kPidfdSendSignal, pidfd_.get(), signal_number, request ? &info : nullptr, 0U) == 0) return 0;
      if (errno != ENOSYS) return errno;
    }
    if (!request) return kill(process_.pid, signal_number) == 0 ? 0 : errno;
    return syscall(SYS_rt_sigqueueinfo, process_.pid, signal_number, &info) == 0 ? 0 : errno;
  }

 private:
  wire::ProcessIdentity process_;
  base::UniqueFd pidfd_;
};

off_t SizeOf(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 ? facts.st_size : 0;
}

std::string ReadFrom(const std::string& path, off_t begin) {
  const base::UniqueFd file(base::OpenWithoutLinks(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return "";
  // The file was truncated and started again.
  if (facts.st_size < begin) begin = 0;
  return base::ReadRange(file.get(), static_cast<std::uint64_t>(begin),
                         static_cast<std::size_t>(std::min(facts.st_size - begin, kMaxRead)));
}

std::string SecondsText(base::Duration duration) {
  const auto tenths = std::chrono::duration_cast<milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

struct StackCollection::Impl {
  struct PendingRank {
    StackTarget target;
    RankStacks result;
    Handle handle;
    off_t begin = 0;     // of the file, at the time of the request
    off_t seen = -1;     // size at the last poll
    bool waits = false;  // the answer is pending
    bool runs = false;   // was stopped and has been continued
    bool continued = false;
    std::optional<base::TimePoint> held_since;
  };

  Impl(base::EventLoop& its_loop, const StackCollectionOptions& its_options, Done its_done)
      : loop(its_loop), options(its_options), done(std::move(its_done)), request(NewRequest()) {}

  ~Impl() {
    loop.Remove(timer);
    for (PendingRank& rank : ranks) StopAgain(rank);
  }

  void RequestAll(std::vector<StackTarget> targets) {
    began = loop.clock().Now();
    for (StackTarget& target : targets) {
      PendingRank& rank = ranks.emplace_back();
      rank.target = std::move(target);
      rank.result.rank = rank.target.rank;
      rank.result.process = rank.target.process;
      rank.result.why_none = Request(rank);
      rank.waits = rank.result.why_none.empty();
    }
    timer = loop.After(milliseconds(0), [this] { Poll(); });
  }

  // Returns why the request is impossible; empty if it was sent.
  std::string Request(PendingRank& rank) {
    const wire::ProcessIdentity& process = rank.target.process;
    const std::string name = "process " + std::to_string(process.pid);
    rank.handle = Handle(process);
    const auto stat = wire::ReadProcessStat(process.pid);
    if (!stat || process.pid <= 1 || process.start_ticks == 0 || stat->start_ticks != process.start_ticks ||
        stat->state == 'Z' || stat->state == 'X') {
      return name + " has ended";
    }
    rank.result.state = stat->state;
    const int signal_number = rank.target.signal;
    if (signal_number < SIGRTMIN || signal_number > SIGRTMAX || rank.target.file.empty()) {
      return "the rank does not take the request: the agent is not in it (a static program, --no-agent, a shell that "
             "waits for its program), or the program uses the signal itself";
    }
    const SignalFacts facts = ReadSignalFacts(process.pid, signal_number, base::SystemRoot("/"));
    if (facts.tracer != 0) {
      return "a debugger or tracer holds it (process " + std::to_string(facts.tracer) + "): ask that for the stack";
    }
    if (!facts.caught) return "the program has become another one by exec, and the agent is not in that";
    if (!facts.takeable) return "every thread of it blocks signal " + std::to_string(signal_number);
    rank.begin = SizeOf(rank.target.file);
    switch (const int error = rank.handle.Send(signal_number, request)) {
      case 0:
        break;
      case ESRCH:
        return name + " has ended";
      case EPERM:
        return name + " is another user's";
      case EAGAIN:
        return "the kernel takes no more signals for it (ulimit -i)";
      default:
        return "it cannot be signalled: " + std::string(std::strerror(error));
    }
    if (stat->state == 'T') {
      rank.runs = rank.continued = rank.handle.Send(SIGCONT, std::nullopt) == 0;
      rank.result.was_stopped = rank.continued;
    }
    return "";
  }

  void StopAgain(PendingRank& rank) {
    if (!rank.runs) return;
    rank.runs = false;
    rank.handle.Send(SIGSTOP, std::nullopt);
  }

  void Poll() {
    const base::TimePoint now = loop.clock().Now();
    const bool over = now - began >= options.timeout;
    bool all = true;
    for (PendingRank& rank : ranks) {
      if (!rank.waits) continue;
      ReadAnswer(rank, now);
      if (rank.waits && over) {
        rank.result.why_none = "it did not answer within " + SecondsText(options.timeout);
        rank.waits = false;
      }
      if (rank.waits) CheckAlive(rank, now);
      if (!rank.waits) StopAgain(rank);
      all = all && !rank.waits;
    }
    if (all) return Finish();
    timer = loop.After(kPollInterval, [this] { Poll(); });
  }

  void ReadAnswer(PendingRank& rank, base::TimePoint now) {
    const off_t size = SizeOf(rank.target.file);
    if (size == rank.seen || size == rank.begin) return;
    rank.seen = size;
    std::vector<StackDump> dumps = ParseStackDumps(ReadFrom(rank.target.file, rank.begin));
    const auto found =
        std::find_if(dumps.begin(), dumps.end(), [this](const StackDump& dump) { return dump.Answers(request); });
    if (found == dumps.end()) return;
    rank.result.dump = std::move(*found);
    if (!rank.result.dump->whole) return;
    rank.result.took = now - began;
    rank.waits = false;
  }

  // Gives up on ranks that are gone or cannot run.
  void CheckAlive(PendingRank& rank, base::TimePoint now) {
    const int pid = rank.target.process.pid;
    if (!wire::IsAlive(rank.target.process)) {
      rank.result.why_none = "process " + std::to_string(pid) + " ended before it answered";
      rank.waits = false;
      return;
    }
    const auto stat = wire::ReadProcessStat(pid);
    if (!stat || stat->state != 'D') {
      rank.held_since.reset();
      return;
    }
    if (!rank.held_since) rank.held_since = now;
    if (now - *rank.held_since < kHeldLongEnough) return;
    const std::vector<ThreadFacts> threads = ReadThreads(pid, base::SystemRoot("/"));
    const bool all = std::all_of(threads.begin(), threads.end(), [](const auto& each) { return each.state == 'D'; });
    if (!all) return;
    rank.result.why_none = "the kernel holds all its threads (state D), so that none can answer";
    rank.waits = false;
  }

  void Finish() {
    timer = 0;
    std::vector<int> pids;
    for (const PendingRank& rank : ranks) pids.push_back(rank.target.process.pid);
    std::vector<std::vector<ChildFacts>> children = ReadChildren(pids, options.root);
    std::vector<RankStacks> results;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      RankStacks& result = ranks[i].result;
      if (result.state != '?') result.children = std::move(children[i]);
      if (!result.complete() && result.state != '?') {
        // Not if another process has its pid now.
        if (wire::IsAlive(result.process)) result.threads = ReadThreads(result.process.pid, options.root);
      }
      results.push_back(std::move(result));
    }
    // Must be last: `done` may destroy this object.
    const Done call = std::move(done);
    call(std::move(results));
  }

  base::EventLoop& loop;
  const StackCollectionOptions options;
  Done done;
  const std::uint32_t request;
  base::TimePoint began{};
  std::vector<PendingRank> ranks;
  base::EventLoop::Id timer = 0;
};

StackCollection::StackCollection(base::EventLoop& loop, std::vector<StackTarget> targets,
                                 const StackCollectionOptions& options, Done done)
    : impl_(std::make_unique<Impl>(loop, options, std::move(done))) {
  impl_->RequestAll(std::move(targets));
}

StackCollection::~StackCollection() = default;

bool StackCollection::WasContinuedByUs(pid_t pid) const {
  return std::any_of(impl_->ranks.begin(), impl_->ranks.end(),
                     [pid](const Impl::PendingRank& rank) { return rank.continued && rank.target.process.pid == pid; });
}

}  // namespace fulldeck::diagnosis
