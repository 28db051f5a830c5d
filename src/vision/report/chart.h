// A curve over the steps of a run as an SVG picture with axes, ticks and labels. The page's style sheet (page_style.h)
// sets the colors. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "report/run_report.h"

namespace fulldeck::report {

struct ChartStyle {
  std::string color_class;  // of the style sheet: "c1" …
  bool smoothed = false;    // faint points with a smoothed line on top
  bool marks = false;       // a dot at every point; for few points
  bool from_zero = false;   // the y axis starts at 0
  bool to_one = false;      // and ends at 1 if no value is larger
};

// Values that are not finite interrupt the line and are counted below the picture. Returns an empty string for a curve
// without a finite point.
std::string CurveChart(const Curve& curve, const ChartStyle& style);

// About `wanted` round numbers within the range. low < high.
std::vector<double> NiceTicks(double low, double high, int wanted);

// At most about 2 · `buckets` points: the minimum and the maximum of each bucket, so that peaks are kept.
std::vector<Point> Downsampled(const std::vector<Point>& points, std::size_t buckets);

// A centered moving average; the number of neighbors depends on the number of points. Skips values that are not finite.
std::vector<Point> Smoothed(const std::vector<Point>& points);

}  // namespace fulldeck::report
