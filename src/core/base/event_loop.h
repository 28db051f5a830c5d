// EventLoop: one thread that waits for descriptors, timers, child processes and signals (epoll, timerfd, pidfd,
// signalfd) and calls the handler of each event. Nothing polls. Not for blocking work: a handler must return soon.
//
// Thread rule: all calls, including the handlers, are made on the thread that runs the loop.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::base {

class EventLoop {
 public:
  using Id = std::uint64_t;
  using Handler = std::function<void()>;
  // The status as returned by waitpid; nullopt if the process is not a child of this process.
  using ExitHandler = std::function<void(std::optional<int> wait_status)>;
  using SignalHandler = std::function<void(int signal_number)>;

  enum class ChildEvents { kPidfdIfPossible, kSigchld };

  // kSigchld is the fallback for kernels before 5.3; passing it lets a test use that path on any kernel.
  explicit EventLoop(const Clock& clock = SteadyClock::Instance(),
                     ChildEvents child_events = ChildEvents::kPidfdIfPossible);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls `handler` whenever `fd` is readable (or has hung up). The caller owns the descriptor and must remove the
  // watch before closing it. Fails for descriptors that epoll does not support, such as regular files.
  Result<Id> WhenReadable(int fd, Handler handler);
  Result<Id> WhenWritable(int fd, Handler handler);

  // Calls `handler` once, at `when` on this loop's clock.
  Id At(TimePoint when, Handler handler);
  Id After(Duration delay, Handler handler) { return At(clock_.Now() + delay, std::move(handler)); }

  // Calls `handler` once, when the process has exited; a child is reaped first. Fails if the process does not exist.
  Result<Id> WhenExited(pid_t pid, ExitHandler handler);

  // Blocks the signals in this thread and calls `handler` for each one that arrives, until the loop is destroyed.
  Result<void> OnSignals(const std::vector<int>& signals, SignalHandler handler);

  // Removes a watch, timer or child. May be called inside a handler, also for the handler's own id. Unknown ids are
  // ignored: the event may just have fired.
  void Remove(Id id);

  // Waits until an event arrives or `timeout` expires, and calls the handlers that are due. Returns whether it called
  // any.
  bool RunOnce(std::optional<Duration> timeout = std::nullopt);

  // Runs until Stop() is called from a handler.
  void Run();
  void Stop() { stopped_ = true; }

  const Clock& clock() const { return clock_; }

 private:
  struct Watch;
  struct Child;
  Result<Id> AddWatch(int fd, std::uint32_t events, Handler handler);
  bool FireDueTimers();
  void ArmTimer();
  void ReapWithoutPidfds();
  void ReadSignals(int fd, const SignalHandler& handler);

  const Clock& clock_;
  UniqueFd epoll_;
  UniqueFd timer_;
  bool pidfds_ = true;
  bool stopped_ = false;
  Id next_id_ = 1;
  std::map<Id, std::shared_ptr<Watch>> watches_;
  std::map<Id, std::shared_ptr<Child>> children_;
  std::multimap<TimePoint, std::pair<Id, Handler>> timers_;
  std::vector<UniqueFd> signal_fds_;
  bool watches_sigchld_ = false;
  struct SignalMask;
  std::unique_ptr<SignalMask> mask_before_;
};

// One timer that belongs to an object and is canceled with it.
class LoopTimer {
 public:
  explicit LoopTimer(EventLoop& loop) : loop_(loop) {}
  ~LoopTimer() { Cancel(); }
  LoopTimer(const LoopTimer&) = delete;
  LoopTimer& operator=(const LoopTimer&) = delete;

  // Replaces an earlier setting.
  void Set(Duration delay, std::function<void()> handler) {
    Cancel();
    id_ = loop_.After(delay, [this, handler = std::move(handler)] {
      id_ = 0;
      handler();
    });
  }
  void Cancel() { loop_.Remove(std::exchange(id_, 0)); }
  bool is_set() const { return id_ != 0; }

 private:
  EventLoop& loop_;
  EventLoop::Id id_ = 0;
};

}  // namespace fulldeck::base
