// The progress line of a training run on the console:
//
//   step 120/300  40%  loss 0.4312  lr 9.2e-05  152 samples/s  ETA 1:42  cards 7/8 busy  mIoU 0.7812
//
// Pure functions: they read neither a clock nor a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fulldeck::report {

struct Progress {
  std::int64_t step = 0;
  std::int64_t total = 0;  // 0: unknown
  std::optional<double> loss;
  std::optional<double> lr;
  std::optional<double> samples_per_second;  // of all cards
  std::optional<double> seconds_left;
  int ranks = 0;                  // at most one card per rank
  std::optional<int> ranks_busy;  // ranks that trained
  std::optional<int> cards_busy;  // by telemetry; printed instead of the ranks
  int cards_unknown = 0;
  std::string metric_name = "mIoU";
  std::optional<double> metric;  // of the last validation
};

// For a log: all known fields, whatever the length, without a newline.
std::string ProgressLine(const Progress& progress);

// For a terminal with `columns`: "\r", as many fields as fit into one column less (the least important are dropped
// first: the learning rate, the percentage, the metric …), and the rest of the row erased. The caller prints the final
// newline.
std::string TerminalProgress(const Progress& progress, int columns);

// "0:07", "1:42", "3:05:09", "2 d 4 h".
std::string FormatDuration(double seconds);

}  // namespace fulldeck::report
