// Reads the run's cards in a child process: vendor libraries can hang, crash, or reap children, which the supervisor
// must not be exposed to. The child ends with the supervisor or when the watch is destroyed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "device/card.h"
#include "diagnosis/card_usage.h"

namespace fulldeck::launcher {

// Callbacks of a watch. A callback must not destroy the watch.
struct CardWatchEvents {
  std::function<void(const diagnosis::CardReading&)> reading;
  // All cards were read once more. `requested`: first complete round since RequestReading() was called.
  std::function<void(bool requested)> round;
};

// Not thread safe: use only on the loop's thread.
class CardWatch {
 public:
  // Interval for simulated cards during the first minute; they are cheap to read. Real cards, and all cards after the
  // first minute, are read once per second.
  static constexpr std::chrono::milliseconds kFastInterval{100};

  // Starts reading. `progress` (argument: position in `cards`) is called in the child process before each reading. It
  // may only access memory that the child shares with other processes.
  static base::Result<std::unique_ptr<CardWatch>> Start(
      base::EventLoop& loop, const std::vector<device::Card>& cards, const base::Environment& environment,
      const std::function<diagnosis::CardProgress(std::size_t)>& progress, CardWatchEvents events);
  ~CardWatch();  // kills the process and reaps it
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

  // Requests one more reading immediately; the next round is reported as requested. Returns false if the child process
  // is gone.
  bool RequestReading();

  pid_t pid() const { return pid_; }
  // Another caller has already reaped the process.
  void Reaped() { pid_ = -1; }

 private:
  CardWatch(base::EventLoop& loop, CardWatchEvents events) : loop_(loop), events_(std::move(events)) {}
  void ReadPipe();
  void Take(std::string_view line);

  base::EventLoop& loop_;
  CardWatchEvents events_;
  pid_t pid_ = -1;
  base::UniqueFd pipe_;
  base::UniqueFd requests_;
  base::EventLoop::Id watch_ = 0;
  std::string unfinished_;
};

}  // namespace fulldeck::launcher
