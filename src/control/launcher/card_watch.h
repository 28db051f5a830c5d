// Readings of the run's cards, taken in a process of its own: vendors' libraries hang, crash and reap children, and the
// supervisor must not. The process ends with the supervisor and when the watch does.
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

// What a watch reports; neither may destroy it.
struct CardWatchEvents {
  std::function<void(const diagnosis::CardReading&)> reading;
  // All cards were read once more. `requested`: for the first time since RequestReading() was called.
  std::function<void(bool requested)> round;
};

// One thread: the loop's.
class CardWatch {
 public:
  // Simulated cards, which cost little to read, are read this often in the first minute; real ones, and all of them
  // later, once a second.
  static constexpr std::chrono::milliseconds kFastInterval{100};

  // Reads from now on. `progress` of a card (by its position in `cards`) is called in the process that reads, before
  // each reading: it may look at memory that this process shares with others, and at nothing else.
  static base::Result<std::unique_ptr<CardWatch>> Start(
      base::EventLoop& loop, const std::vector<device::Card>& cards, const base::Environment& environment,
      const std::function<diagnosis::CardProgress(std::size_t)>& progress, CardWatchEvents events);
  ~CardWatch();  // kills the process and reaps it
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

  // Reads once more now; the round that follows says that it was requested for. False when nobody reads any more.
  bool RequestReading();

  pid_t pid() const { return pid_; }
  // Somebody else has reaped it.
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
