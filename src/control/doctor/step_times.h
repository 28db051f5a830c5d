// Measures how long a repeated step takes, as far as the card determines it: excludes times in which this thread lost
// its CPU. Not thread safe.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/clock.h"

namespace fulldeck::doctor {

class StepTimes {
 public:
  void Begin() {
    preempted_before_ = Preempted();
    begin_ = base::SteadyClock::Instance().Now();
  }
  void End() {
    const double took = std::chrono::duration<double>(base::SteadyClock::Instance().Now() - begin_).count();
    all_.push_back(took);
    sum_ += took;
    if (Preempted() == preempted_before_) undisturbed_.push_back(took);
  }

  bool Enough() const {
    return (undisturbed_.size() >= kWanted && sum_ >= kShortest) || (all_.size() >= kWanted && sum_ >= kLongest);
  }

  // Mean, in seconds: a card that pauses after its work, every few steps, is slow too.
  double Typical() const {
    const std::vector<double>& times = undisturbed_.size() >= kFewest ? undisturbed_ : all_;
    if (times.empty()) return 0;
    return std::max(std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()), 1e-9);
  }

 private:
  static constexpr std::size_t kWanted = 12;
  static constexpr std::size_t kFewest = 3;
  static constexpr double kShortest = 0.05;  // seconds in total, so that a pause is included
  static constexpr double kLongest = 1;

  static long Preempted() {
    rusage usage{};
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
  }

  long preempted_before_ = 0;
  base::TimePoint begin_;
  double sum_ = 0;
  std::vector<double> all_;
  std::vector<double> undisturbed_;
};

}  // namespace fulldeck::doctor
