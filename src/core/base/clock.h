// Time as an interface, the machine's monotonic clock, and a clock that tests advance by hand.
#pragma once

#include <chrono>
#include <string>

namespace fulldeck::base {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// "12.3 s"
std::string FormatSeconds(Duration duration);
// "30 s", "0.5 s": one decimal, omitted if it is zero.
std::string FormatTimeout(Duration duration);

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// CLOCK_MONOTONIC: the same in every process of this node. Thread safe.
class SteadyClock final : public Clock {
 public:
  static const SteadyClock& Instance();
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

// Changes only in Advance(). Not thread safe.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{std::chrono::hours(1)};
};

}  // namespace fulldeck::base
