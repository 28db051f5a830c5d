// The report of a training run: report.html (one file, without external scripts or fonts) and report.txt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "report/scores.h"

namespace fulldeck::report {

struct Point {
  std::int64_t step = 0;
  double value = 0;
};

struct Curve {
  std::string name;  // "loss", "lr", "mIoU", "samples/s"
  std::vector<Point> points;
};

struct RankTimes {
  int rank = 0;
  std::string device;                                          // "gcu:3"
  double data = 0, compute = 0, communication = 0, other = 0;  // seconds
  std::uint64_t samples = 0;
  std::optional<std::uint64_t> peak_memory;  // bytes
};

struct Example {
  std::string name;
  // PNG bytes; truth and prediction in the classes' colors; classification: empty.
  std::string image_png, truth_png, prediction_png;
  std::string truth_text, prediction_text;  // classification
};

struct LegendEntry {
  std::string name;
  std::uint8_t red = 0, green = 0, blue = 0;
};

struct Verified {
  std::string what;      // "parameters equal on all 8 ranks"
  std::string evidence;  // "16-byte hash compared 12 times"
};

struct RunReport {
  std::string title;                 // the job's name
  std::string outcome;               // "finished 300 steps", "stopped by SIGTERM at step 120; resume with …"
  std::string metric_name = "mIoU";  // of the line for programs: `mIoU 0.8312`
  std::optional<double> metric;      // absent: no validation, and therefore no such line
  std::vector<std::pair<std::string, std::string>> facts;  // "cards" "8 × gcu (simulated)", "global batch" "16" …
  std::vector<Curve> curves;
  std::optional<Scores> scores;
  std::vector<LegendEntry> legend;
  std::vector<Example> examples;
  std::vector<RankTimes> ranks;
  double samples_per_second = 0;
  std::optional<double> single_card_samples_per_second;  // measured before the run; the baseline for scaling
  std::vector<Verified> verified;
  std::vector<std::string> warnings;  // corrupt files, for example
};

// Speedup over a single card. Absent if the single-card speed was not measured, or the run had only one card.
struct Scaling {
  int cards = 0;
  double single_card = 0;  // samples/s
  double factor = 0;       // of all cards relative to one
  double efficiency = 0;   // factor / cards
};
std::optional<Scaling> ScalingOf(const RunReport& report);

// External text (names, messages) may contain anything: it is escaped and shown as text.
std::string HtmlOf(const RunReport& report);
// Contains `mIoU 0.831200` (metric_name, six digits) on its own line, for programs.
std::string TextOf(const RunReport& report);
// Creates the folder and writes both files, each to a temporary file that is renamed.
base::Result<void> WriteReport(const std::string& folder, const RunReport& report);

}  // namespace fulldeck::report
