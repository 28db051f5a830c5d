// The one line in which a person watches a training run:
//
//   step 120/300  40%  loss 0.4312  lr 9.2e-05  152 samples/s  ETA 1:42  cards 7/8 busy  mIoU 0.7812
//
// Pure functions: they read no clock and no terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fulldeck::report {

struct Progress {
  std::int64_t step = 0;
  std::int64_t total = 0;  // 0: not known
  std::optional<double> loss;
  std::optional<double> lr;
  std::optional<double> samples_per_second;  // of all cards
  std::optional<double> seconds_left;
  int ranks = 0;                  // one card each, if any
  std::optional<int> ranks_busy;  // ranks that trained
  std::optional<int> cards_busy;  // by telemetry; shown instead of the ranks
  int cards_unknown = 0;
  std::string metric_name = "mIoU";
  std::optional<double> metric;  // of the last validation
};

// For a log: everything that is known, no matter how long, without a line's end.
std::string ProgressLine(const Progress& progress);

// For a terminal of `columns`: "\r", as much as fits in one column less (what matters least goes first: the learning
// rate, the percentage, the metric …), and the rest of the row erased. A line's end is the caller's, after the last.
std::string TerminalProgress(const Progress& progress, int columns);

// "0:07", "1:42", "3:05:09", "2 d 4 h".
std::string FormatDuration(double seconds);

}  // namespace fulldeck::report
