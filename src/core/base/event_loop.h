// EventLoop: one thread that waits for descriptors, timers, children and signals at once (epoll, timerfd, pidfd,
// signalfd) and calls the handler of what happened. Nothing polls. Not for work that blocks: a handler must return
// soon.
//
// Thread rule: everything, the handlers included, on the thread that runs the loop.
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
  // The status as waitpid gives it; nothing when the process was not a child of ours.
  using ExitHandler = std::function<void(std::optional<int> wait_status)>;
  using SignalHandler = std::function<void(int signal_number)>;

  enum class ChildEvents { kPidfdIfPossible, kSigchld };

  // kSigchld is what kernels before 5.3 get; naming it lets a test walk that path on any kernel.
  explicit EventLoop(const Clock& clock = SteadyClock::Instance(),
                     ChildEvents child_events = ChildEvents::kPidfdIfPossible);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls `handler` whenever `fd` can be read (or has hung up). The caller keeps the descriptor, and removes the watch
  // before it closes it. An error for what epoll cannot wait on, such as a regular file.
  Result<Id> WhenReadable(int fd, Handler handler);
  Result<Id> WhenWritable(int fd, Handler handler);

  // Calls `handler` once, at `when` by this loop's clock.
  Id At(TimePoint when, Handler handler);
  Id After(Duration delay, Handler handler) { return At(clock_.Now() + delay, std::move(handler)); }

  // Calls `handler` once, when the process has ended; a child is reaped first. An error when there is no such process.
  Result<Id> WhenExited(pid_t pid, ExitHandler handler);

  // Blocks the signals for this thread and calls `handler` for each one that arrives. Until the loop is destroyed.
  Result<void> OnSignals(const std::vector<int>& signals, SignalHandler handler);

  // Forgets a watch, timer or child. Inside a handler too, also its own. Unknown ids are fine: it may just have fired.
  void Remove(Id id);

  // Waits until something happens or `timeout` is over, and calls what is due. Returns false when nothing was.
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

// One timer of an object, gone with it.
class LoopTimer {
 public:
  explicit LoopTimer(EventLoop& loop) : loop_(loop) {}
  ~LoopTimer() { Cancel(); }
  LoopTimer(const LoopTimer&) = delete;
  LoopTimer& operator=(const LoopTimer&) = delete;

  // Forgets what it was set for before.
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
