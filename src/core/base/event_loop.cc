#include "base/event_loop.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/check.h"

namespace fulldeck::base {
namespace {

// The same number on every architecture; older headers do not define it.
constexpr long kPidfdOpen = 434;

int OpenPidfd(pid_t pid) {
  return static_cast<int>(syscall(kPidfdOpen, pid, 0U));
}

// Reaps the child if it has exited, and returns its status.
std::optional<int> ReapIfChild(pid_t pid) {
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = waitpid(pid, &status, WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  return reaped == pid ? std::optional(status) : std::nullopt;
}

}  // namespace

struct EventLoop::Watch {
  int fd;
  Handler handler;
};

struct EventLoop::Child {
  pid_t pid;
  ExitHandler handler;
  UniqueFd pidfd;
  Id watch = 0;
};

struct EventLoop::SignalMask {
  sigset_t set;
};

EventLoop::EventLoop(const Clock& clock, ChildEvents child_events)
    : clock_(clock),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      pidfds_(child_events == ChildEvents::kPidfdIfPossible) {
  FULLDECK_CHECK(epoll_.valid());
  FULLDECK_CHECK(timer_.valid());
  const auto watch = AddWatch(timer_.get(), EPOLLIN, [this] {
    std::uint64_t expirations = 0;
    [[maybe_unused]] const auto got = read(timer_.get(), &expirations, sizeof expirations);
  });
  FULLDECK_CHECK(watch.ok());
}

EventLoop::~EventLoop() {
  if (mask_before_) pthread_sigmask(SIG_SETMASK, &mask_before_->set, nullptr);
}

Result<EventLoop::Id> EventLoop::AddWatch(int fd, std::uint32_t events, Handler handler) {
  const Id id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoError("cannot wait on a descriptor");
  watches_.emplace(id, std::make_shared<Watch>(Watch{fd, std::move(handler)}));
  return id;
}

Result<EventLoop::Id> EventLoop::WhenReadable(int fd, Handler handler) {
  return AddWatch(fd, EPOLLIN, std::move(handler));
}

Result<EventLoop::Id> EventLoop::WhenWritable(int fd, Handler handler) {
  return AddWatch(fd, EPOLLOUT, std::move(handler));
}

EventLoop::Id EventLoop::At(TimePoint when, Handler handler) {
  const Id id = next_id_++;
  timers_.emplace(when, std::make_pair(id, std::move(handler)));
  return id;
}

Result<EventLoop::Id> EventLoop::WhenExited(pid_t pid, ExitHandler handler) {
  auto child = std::make_shared<Child>(Child{pid, std::move(handler), UniqueFd(), 0});
  if (pidfds_) {
    child->pidfd.Reset(OpenPidfd(pid));
    if (!child->pidfd.valid() && errno != ENOSYS) return ErrnoError("process " + std::to_string(pid));
    pidfds_ = child->pidfd.valid();
  }
  const Id id = next_id_++;
  if (pidfds_) {
    const auto watch = AddWatch(child->pidfd.get(), EPOLLIN, [this, id] {
      const auto found = children_.find(id);
      if (found == children_.end()) return;
      const std::shared_ptr<Child> ended = found->second;
      Remove(id);
      ended->handler(ReapIfChild(ended->pid));
    });
    if (!watch) return watch.error();
    child->watch = *watch;
  } else {
    // SIGCHLD must be blocked before the state of the child is checked. A child that exits between the two then leaves
    // a pending signal, and one that exited earlier is found by waitid. In the opposite order, an exit between the two
    // would be lost.
    if (!watches_sigchld_) {
      const auto watching = OnSignals({SIGCHLD}, [this](int) { ReapWithoutPidfds(); });
      if (!watching) return watching.error();
      watches_sigchld_ = true;
    }
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      return ErrnoError("process " + std::to_string(pid) + " (only children can be watched on this kernel)");
    }
    if (info.si_pid == pid) At(clock_.Now(), [this] { ReapWithoutPidfds(); });
  }
  children_.emplace(id, std::move(child));
  return id;
}

void EventLoop::ReapWithoutPidfds() {
  std::vector<std::pair<ExitHandler, int>> ended;
  for (auto child = children_.begin(); child != children_.end();) {
    const auto status = ReapIfChild(child->second->pid);
    if (status) ended.emplace_back(child->second->handler, *status);
    child = status ? children_.erase(child) : std::next(child);
  }
  for (const auto& [handler, status] : ended) handler(status);
}

Result<void> EventLoop::OnSignals(const std::vector<int>& signals, SignalHandler handler) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal_number : signals) sigaddset(&set, signal_number);
  auto before = std::make_unique<SignalMask>();
  if (pthread_sigmask(SIG_BLOCK, &set, &before->set) != 0) return ErrnoError("cannot block signals");
  if (!mask_before_) mask_before_ = std::move(before);
  signal_fds_.emplace_back(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  const int fd = signal_fds_.back().get();
  if (fd < 0) return ErrnoError("signalfd");
  const auto watch = WhenReadable(fd, [this, fd, handler = std::move(handler)] { ReadSignals(fd, handler); });
  if (!watch) return watch.error();
  // signalfd merges pending signals of one number, so a SIGCHLD may stand for several children: ReapWithoutPidfds()
  // checks all of them.
  return {};
}

void EventLoop::ReadSignals(int fd, const SignalHandler& handler) {
  signalfd_siginfo info{};
  while (read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) handler(static_cast<int>(info.ssi_signo));
  // A handler may call this for its own id. Invariant: whoever calls a handler first takes it out of its map or holds a
  // shared_ptr to it, so that removing it here never destroys a function that is running.
}

void EventLoop::Remove(Id id) {
  if (const auto watch = watches_.find(id); watch != watches_.end()) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch->second->fd, nullptr);
    watches_.erase(watch);
  }
  if (const auto child = children_.find(id); child != children_.end()) {
    const std::shared_ptr<Child> removed = child->second;
    children_.erase(child);
    if (removed->watch != 0) Remove(removed->watch);
  }
  const auto timer =
      std::find_if(timers_.begin(), timers_.end(), [id](const auto& entry) { return entry.second.first == id; });
  if (timer != timers_.end()) timers_.erase(timer);
}

bool EventLoop::FireDueTimers() {
  // Collects only the timers that are due now. A timer that a handler sets for "now" fires in the next round, after the
  // descriptors, so timers cannot starve them.
  std::vector<Id> due;
  const auto end = timers_.upper_bound(clock_.Now());
  for (auto timer = timers_.begin(); timer != end; ++timer) due.push_back(timer->second.first);
  for (const Id id : due) {
    const auto timer =
        std::find_if(timers_.begin(), timers_.end(), [id](const auto& entry) { return entry.second.first == id; });
    if (timer == timers_.end()) continue;
    const Handler handler = std::move(timer->second.second);
    timers_.erase(timer);
    handler();
  }
  return !due.empty();
}

void EventLoop::ArmTimer() {
  itimerspec when{};
  if (!timers_.empty()) {
    const Duration left = std::max(timers_.begin()->first - clock_.Now(), Duration(1));
    when.it_value.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  }
  FULLDECK_CHECK(timerfd_settime(timer_.get(), 0, &when, nullptr) == 0);
}

bool EventLoop::RunOnce(std::optional<Duration> timeout) {
  const bool fired = FireDueTimers();
  ArmTimer();
  int timeout_ms = fired ? 0 : -1;
  if (timeout && !fired) {
    const auto rounded_up = std::chrono::ceil<std::chrono::milliseconds>(*timeout).count();
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(rounded_up, 0, 1 << 30));
  }
  std::array<epoll_event, 32> events;
  const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  FULLDECK_CHECK(ready >= 0 || errno == EINTR);
  bool called = fired;
  for (int i = 0; i < ready; ++i) {
    // An earlier handler of this round may have removed this watch. The shared_ptr keeps the handler alive if it
    // removes itself.
    const auto found = watches_.find(events[static_cast<std::size_t>(i)].data.u64);
    if (found == watches_.end()) continue;
    const std::shared_ptr<Watch> watch = found->second;
    watch->handler();
    called = called || watch->fd != timer_.get();
  }
  return FireDueTimers() || called;
}

void EventLoop::Run() {
  stopped_ = false;
  while (!stopped_) RunOnce();
}

}  // namespace fulldeck::base
