// Readings of the run's cards, taken in a process of its own: vendors' libraries hang, crash and reap children, and the
// supervisor must not. The process ends with the supervisor and when the watch does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "device/card.h"
#include "launcher/idle_gate.h"

namespace fulldeck::launcher {

// One thread: the loop's.
class CardWatch {
 public:
  // Reads once a second from now on. `on_reading` must not destroy the watch.
  static base::Result<std::unique_ptr<CardWatch>> Start(base::EventLoop& loop, const std::vector<device::Card>& cards,
                                                        const base::Environment& environment,
                                                        std::function<void(const CardReading&)> on_reading);
  ~CardWatch();  // kills the process and reaps it
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

  pid_t pid() const { return pid_; }
  // Somebody else has reaped it.
  void Reaped() { pid_ = -1; }

 private:
  CardWatch(base::EventLoop& loop, std::function<void(const CardReading&)> on_reading)
      : loop_(loop), on_reading_(std::move(on_reading)) {}
  void ReadPipe();

  base::EventLoop& loop_;
  std::function<void(const CardReading&)> on_reading_;
  pid_t pid_ = -1;
  base::UniqueFd pipe_;
  base::EventLoop::Id watch_ = 0;
  std::string unfinished_;
};

}  // namespace fulldeck::launcher
