// The report of a training run: report.html (one file, no script and no font from elsewhere) and report.txt.
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
  std::string image_png, truth_png, prediction_png;  // bytes; truth and prediction coloured; classification: empty
  std::string truth_text, prediction_text;           // classification
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
  std::string metric_name = "mIoU";  // of the line that programs read: `mIoU 0.8312`
  std::optional<double> metric;      // absent: nothing was validated, and then there is no such line
  std::vector<std::pair<std::string, std::string>> facts;  // "cards" "8 × gcu (simulated)", "global batch" "16" …
  std::vector<Curve> curves;
  std::optional<Scores> scores;
  std::vector<LegendEntry> legend;
  std::vector<Example> examples;
  std::vector<RankTimes> ranks;
  double samples_per_second = 0;
  std::optional<double> single_card_samples_per_second;  // measured before the run; scaling is against it
  std::vector<Verified> verified;
  std::vector<std::string> warnings;  // corrupt files and such
};

// How much faster the run was than one card. Absent where one card was not measured, or is all there was.
struct Scaling {
  int cards = 0;
  double single_card = 0;  // samples/s
  double factor = 0;       // of all cards against one
  double efficiency = 0;   // factor / cards
};
std::optional<Scaling> ScalingOf(const RunReport& report);

// What comes from outside (names, messages) may hold anything: it is escaped, and shown as text.
std::string HtmlOf(const RunReport& report);
// With the line `mIoU 0.831200` (metric_name, six digits), alone on its line, for programs.
std::string TextOf(const RunReport& report);
// Writes both into the folder, which is made, each beside and renamed.
base::Result<void> WriteReport(const std::string& folder, const RunReport& report);

}  // namespace fulldeck::report
