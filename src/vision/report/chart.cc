#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "report/html_text.h"

namespace fulldeck::report {
namespace {

// Small, so that the text stays legible when a phone shrinks the picture.
constexpr double kWidth = 420;
constexpr double kHeight = 240;
constexpr double kLeft = 54;
constexpr double kRight = 14;
constexpr double kTop = 12;
constexpr double kBottom = 40;
constexpr std::size_t kMaxBuckets = 350;

// Not NaN, and small enough that differences do not overflow.
bool Drawable(double value) {
  return std::abs(value) <= 1e300;
}

struct Scale {
  double low = 0, high = 1;      // of the data
  double begin = 0, length = 1;  // in the picture
  double operator()(double value) const { return begin + (value - low) / (high - low) * length; }
};

// As few digits as distinguish the ticks.
std::string TickLabel(double value, double distance, double greatest) {
  if (value == 0) return "0";
  if (greatest < 1e-2 || greatest >= 1e6) {
    // 2.00e-05 and 1.50e+07 become 2e-5 and 1.5e7.
    std::string text = fmt::format("{:.2e}", value);
    const std::size_t e = text.find('e');
    const auto exponent = static_cast<int>(std::strtol(text.c_str() + e + 1, nullptr, 10));
    text.resize(text.find_last_not_of('0', e - 1) + 1);
    if (text.back() == '.') text.pop_back();
    text += 'e';
    text += std::to_string(exponent);
    return text;
  }
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)), 0, 9);
  return digits == 0 && greatest >= 10000 ? base::FormatThousands(std::llround(value))
                                          : fmt::format("{:.{}f}", value, digits);
}

std::string PathOf(const std::vector<Point>& points, const Scale& x, const Scale& y) {
  std::string path;
  bool joined = false;
  for (const Point& point : points) {
    if (!Drawable(point.value)) {
      joined = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", joined ? "L" : "M", x(static_cast<double>(point.step)), y(point.value));
    joined = true;
  }
  return path;
}

void WidenToDistinct(double& low, double& high) {
  if (low < high) return;
  const double room = low == 0 ? 1 : std::abs(low) * 0.1;
  low -= room;
  high += room;
}

std::string Axes(const Scale& x, const Scale& y, const std::vector<double>& x_ticks,
                 const std::vector<double>& y_ticks) {
  std::string svg;
  const double y_distance = y_ticks.size() > 1 ? y_ticks[1] - y_ticks[0] : 1;
  const double y_greatest = std::max(std::abs(y.low), std::abs(y.high));
  for (const double tick : y_ticks) {
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" class=\"end\">{}</text>",
        kLeft, y(tick), kWidth - kRight, kLeft - 8, y(tick) + 4, TickLabel(tick, y_distance, y_greatest));
  }
  for (const double tick : x_ticks) {
    const double at = x(tick);
    // The last label would exceed the picture.
    const char* anchor = at > kWidth - kRight - 16 ? "end" : "mid";
    svg += fmt::format(
        "<path class=\"axis\" d=\"M{0:.1f} {1:.1f}v4\"/><text x=\"{0:.1f}\" y=\"{2:.1f}\" class=\"{3}\">{4}</text>", at,
        kHeight - kBottom, kHeight - kBottom + 18, anchor, base::FormatThousands(std::llround(tick)));
  }
  svg += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", kLeft, kHeight - kBottom, kWidth - kRight);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"mid\">step</text>", (kLeft + kWidth - kRight) / 2,
                     kHeight - 5);
  return svg;
}

}  // namespace

std::vector<double> NiceTicks(double low, double high, int wanted) {
  const double rough = (high - low) / std::max(wanted, 1);
  const double magnitude = std::pow(10, std::floor(std::log10(rough)));
  double distance = 10 * magnitude;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * magnitude >= rough * (1 - 1e-9)) {
      distance = factor * magnitude;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / distance - 1e-9);
  for (int i = 0; i < 100; ++i) {
    const double tick = (first + i) * distance;
    if (tick > high + distance * 1e-9) break;
    ticks.push_back(std::abs(tick) < distance * 1e-9 ? 0 : tick);
  }
  return ticks;
}

std::vector<Point> Downsampled(const std::vector<Point>& points, std::size_t buckets) {
  if (points.size() <= 2 * buckets || buckets == 0) return points;
  std::vector<Point> downsampled;
  for (std::size_t i = 0; i < buckets; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / buckets);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / buckets);
    const auto less = [](const Point& a, const Point& b) { return a.value < b.value; };
    const auto hole = std::find_if(begin, end, [](const Point& point) { return !Drawable(point.value); });
    if (hole != end) {
      downsampled.push_back(*hole);
      continue;
    }
    const auto [least, greatest] = std::minmax_element(begin, end, less);
    downsampled.push_back(std::min(least, greatest)[0]);
    if (least != greatest) downsampled.push_back(std::max(least, greatest)[0]);
  }
  return downsampled;
}

std::vector<Point> Smoothed(const std::vector<Point>& points) {
  std::vector<Point> smoothed;
  for (const Point& point : points) {
    if (Drawable(point.value)) smoothed.push_back(point);
  }
  const std::size_t reach = std::max<std::size_t>(smoothed.size() / 40, 2);
  // A moving average applied twice weighs near points more than far ones.
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<double> sums = {0};
    for (const Point& point : smoothed) sums.push_back(sums.back() + point.value);
    for (std::size_t i = 0; i < smoothed.size(); ++i) {
      // Narrower towards the ends, so that it does not lag behind a slope, but never a single point.
      const std::size_t half = std::max(std::min({reach, i, smoothed.size() - 1 - i}), (reach + 1) / 2);
      const std::size_t begin = i - std::min(half, i);
      const std::size_t end = std::min(i + half + 1, smoothed.size());
      smoothed[i].value = (sums[end] - sums[begin]) / static_cast<double>(end - begin);
    }
  }
  return smoothed;
}

std::string CurveChart(const Curve& curve, const ChartStyle& style) {
  std::vector<double> finite;
  for (const Point& point : curve.points) {
    if (Drawable(point.value)) finite.push_back(point.value);
  }
  if (finite.empty()) return {};
  const std::size_t broken = curve.points.size() - finite.size();
  const auto [least, greatest] = std::minmax_element(finite.begin(), finite.end());
  double low = style.from_zero ? std::min(0.0, *least) : *least;
  double high = style.to_one && *greatest <= 1 ? 1 : *greatest;
  WidenToDistinct(low, high);
  // The axes end at round numbers, or slightly before them.
  const std::vector<double> inner = NiceTicks(low, high, 5);
  const double distance = inner.size() > 1 ? inner[1] - inner[0] : (high - low);
  low = std::floor(low / distance + 0.03) * distance;
  high = std::ceil(high / distance - 0.03) * distance;

  const auto by_step = [](const Point& a, const Point& b) { return a.step < b.step; };
  const auto [first, last] = std::minmax_element(curve.points.begin(), curve.points.end(), by_step);
  double from = static_cast<double>(std::min<std::int64_t>(first->step, 0));
  double to = static_cast<double>(last->step);
  WidenToDistinct(from, to);
  const Scale x{from, to, kLeft, kWidth - kLeft - kRight};
  const Scale y{low, high, kHeight - kBottom, -(kHeight - kTop - kBottom)};

  const std::string name = Escaped(curve.name);
  std::vector<double> x_ticks = NiceTicks(from, to, 5);
  std::erase_if(x_ticks, [](double tick) { return tick != std::floor(tick); });
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} over the steps\">", kWidth, kHeight, name);
  svg += Axes(x, y, x_ticks, NiceTicks(low, high, 5));
  const std::vector<Point> drawn = Downsampled(curve.points, kMaxBuckets);
  svg += fmt::format("<path class=\"line {}{}\" d=\"{}\"/>", style.color_class, style.smoothed ? " raw" : "",
                     PathOf(drawn, x, y));
  if (style.smoothed)
    svg += fmt::format("<path class=\"line {}\" d=\"{}\"/>", style.color_class,
                       PathOf(Downsampled(Smoothed(curve.points), kMaxBuckets), x, y));
  if (style.marks && drawn.size() <= 60) {
    for (const Point& point : drawn) {
      if (!Drawable(point.value)) continue;
      svg += fmt::format(
          "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"><title>step {}: {:.6g}</title></circle>",
          style.color_class, x(static_cast<double>(point.step)), y(point.value), point.step, point.value);
    }
  }
  svg += "</svg>";
  if (broken > 0) {
    svg += fmt::format("<p class=\"bad\">{} of {} values are not finite (NaN or infinite) and are not drawn.</p>",
                       broken, curve.points.size());
  }
  return svg;
}

}  // namespace fulldeck::report
