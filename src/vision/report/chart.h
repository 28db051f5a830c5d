// A curve over the steps of a run as an SVG picture with axes, ticks and labels; it takes its colors from the page's
// style sheet (html_report.cc). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "report/run_report.h"

namespace fulldeck::report {

struct ChartStyle {
  std::string color_class;  // of the style sheet: "c1" …
  bool smoothed = false;    // the points faint and a smoothed line over them
  bool marks = false;       // a dot at every point: for few points
  bool from_zero = false;   // the y axis begins at 0
  bool to_one = false;      // and ends at 1 where the values do not go beyond
};

// Values that are not finite break the line, and are counted below the picture. A curve without a finite point has no
// chart: an empty text.
std::string CurveChart(const Curve& curve, const ChartStyle& style);

// Round numbers that lie at or between the two, about `wanted` of them. low < high.
std::vector<double> NiceTicks(double low, double high, int wanted);

// At most about 2 · `buckets` points: the least and the greatest of each stretch, so that no peak gets lost.
std::vector<Point> Downsampled(const std::vector<Point>& points, std::size_t buckets);

// A moving average about each point, over as many neighbours as suit the number of points. Not finite ones are left
// out.
std::vector<Point> Smoothed(const std::vector<Point>& points);

}  // namespace fulldeck::report
