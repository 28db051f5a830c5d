#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "base/text_table.h"
#include "report/chart.h"
#include "report/html_text.h"
#include "report/page_style.h"
#include "report/progress_line.h"
#include "report/run_report.h"

namespace fulldeck::report {
namespace {

constexpr std::size_t kMinPointsToSmooth = 60;
constexpr std::size_t kMaxMarks = 25;
constexpr std::size_t kLongFact = 60;  // bytes; a longer fact takes two columns

std::string Percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string Percent(const std::optional<double>& share) {
  return share ? Percent(*share) : std::string(base::kAbsent);
}

std::string Section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<section><h2>{}</h2>{}</section>", title, body);
}

std::string Tile(const std::string& value, const std::string& name, bool first = false) {
  return fmt::format("<div class=\"tile{}\"><b>{}</b><span>{}</span></div>", first ? " main" : "", value, name);
}

std::string Head(const RunReport& report) {
  std::string html = fmt::format("<header><h1>{}</h1><p class=\"outcome\">{}</p></header>", Escaped(report.title),
                                 Escaped(report.outcome));
  std::string tiles;
  if (report.metric) tiles += Tile(fmt::format("{:.4f}", *report.metric), Escaped(report.metric_name), true);
  if (report.scores) {
    if (report.metric_name != "accuracy") tiles += Tile(Percent(report.scores->accuracy), "accuracy");
    tiles += Tile(fmt::format("{:.4f}", report.scores->mdice), "mean Dice");
  }
  if (report.samples_per_second > 0) {
    const int digits = report.samples_per_second < 10 ? 2 : 0;
    tiles += Tile(fmt::format("{:.{}f}", report.samples_per_second, digits), "samples a second");
  }
  if (const auto scaling = ScalingOf(report))
    tiles += Tile(fmt::format("{:.2f}×", scaling->factor), "of one card's speed");
  if (!tiles.empty()) html += "<div class=\"tiles\">" + tiles + "</div>";
  return html;
}

std::string Warnings(const RunReport& report) {
  if (report.warnings.empty()) return {};
  std::string list;
  for (const std::string& warning : report.warnings) list += "<li>" + Escaped(warning) + "</li>";
  return fmt::format("<section class=\"warnings\"><h2>{}</h2><ul>{}</ul></section>",
                     report.warnings.size() == 1 ? "1 warning" : fmt::format("{} warnings", report.warnings.size()),
                     list);
}

std::string Facts(const RunReport& report) {
  std::string list;
  for (const auto& fact : report.facts)
    list += fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>", fact.second.size() > kLongFact ? " class=\"long\"" : "",
                        Escaped(fact.first), Escaped(fact.second));
  return list.empty() ? "" : "<dl>" + list + "</dl>";
}

std::string Curves(const RunReport& report) {
  std::string html;
  int number = 0;
  for (const Curve& curve : report.curves) {
    ChartStyle style;
    style.color_class = fmt::format("c{}", number++ % 4 + 1);
    style.smoothed = curve.name.find("loss") != std::string::npos && curve.points.size() >= kMinPointsToSmooth;
    style.marks = curve.points.size() <= kMaxMarks && curve.name != "lr";
    style.to_one = curve.name == report.metric_name;
    style.from_zero = true;
    const std::string chart = CurveChart(curve, style);
    if (chart.empty()) continue;
    const auto last = std::find_if(curve.points.rbegin(), curve.points.rend(),
                                   [](const Point& point) { return std::isfinite(point.value); });
    html += fmt::format("<figure><figcaption><b>{}</b><span>{}last {:.4g}</span></figcaption>{}</figure>",
                        Escaped(curve.name), style.smoothed ? "<i class=\"faint\"></i>measured <i></i>smoothed · " : "",
                        last->value, chart);
  }
  return html.empty() ? "" : "<div class=\"curves\">" + html + "</div>";
}

std::string Swatch(const LegendEntry& entry) {
  return fmt::format("<i class=\"swatch\" style=\"background:#{:02x}{:02x}{:02x}\"></i>", entry.red, entry.green,
                     entry.blue);
}

std::string Bar(const std::optional<double>& share) {
  const double width = share ? 100 * std::clamp(*share, 0.0, 1.0) : 0;
  return fmt::format("<td class=\"bar\"><span><i style=\"width:{:.2f}%\"></i></span></td><td>{}</td>", width,
                     Percent(share));
}

std::string Classes(const RunReport& report) {
  if (!report.scores) return {};
  const Scores& scores = *report.scores;
  std::int64_t all = 0;
  for (const ClassScores& one : scores.per_class) all += one.truth;
  std::string rows;
  for (std::size_t i = 0; i < scores.per_class.size(); ++i) {
    const ClassScores& one = scores.per_class[i];
    const std::string swatch = i < report.legend.size() ? Swatch(report.legend[i]) : "";
    rows += fmt::format("<tr><th>{}{}</th>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", swatch,
                        Escaped(one.name), Bar(one.iou), Percent(one.dice), Percent(one.precision), Percent(one.recall),
                        all > 0 ? Percent(static_cast<double>(one.truth) / static_cast<double>(all)) : base::kAbsent);
  }
  rows += fmt::format("<tr class=\"mean\"><th>mean</th>{}<td>{}</td><td></td><td>{}</td><td></td></tr>",
                      Bar(scores.miou), Percent(scores.mdice), Percent(scores.mean_accuracy));
  return "<div class=\"wide\"><table><thead><tr><th>class</th><th colspan=\"2\">IoU</th><th>Dice</th><th>precision</th>"
         "<th>recall</th><th>of the truth</th></tr></thead><tbody>" +
         rows + "</tbody></table></div>";
}

std::string Picture(const std::string& png, const char* title, const std::string& name) {
  if (png.empty()) return {};
  return fmt::format("<figure><img src=\"{}\" alt=\"{} of {}\"><figcaption>{}</figcaption></figure>", PngDataUri(png),
                     title, Escaped(name), title);
}

std::string Examples(const RunReport& report) {
  if (report.examples.empty()) return {};
  std::string html;
  bool masks = false;
  for (const Example& example : report.examples) {
    masks = masks || !example.truth_png.empty();
    html += "<article><h3>" + Escaped(example.name) + "</h3><div class=\"triple\">" +
            Picture(example.image_png, "image", example.name) + Picture(example.truth_png, "truth", example.name) +
            Picture(example.prediction_png, "prediction", example.name) + "</div>";
    if (!example.truth_text.empty() || !example.prediction_text.empty()) {
      const bool right = example.truth_text == example.prediction_text;
      html += fmt::format("<p class=\"verdict\"><b class=\"{}\">{}</b> {}<br><span>truth: {}</span></p>",
                          right ? "right" : "wrong", right ? "✓" : "✗", Escaped(example.prediction_text),
                          Escaped(example.truth_text));
    }
    html += "</article>";
  }
  std::string legend;
  if (masks) {
    for (const LegendEntry& entry : report.legend) legend += "<span>" + Swatch(entry) + Escaped(entry.name) + "</span>";
    legend = "<p class=\"legend\">" + legend + "</p>";
  }
  return legend + "<div class=\"" + (masks ? "examples" : "examples small") + "\">" + html + "</div>";
}

std::string Times(const RunReport& report) {
  if (report.ranks.empty()) return {};
  struct Kind {
    const char* name;
    double RankTimes::*seconds;
  };
  constexpr std::array<Kind, 4> kKinds = {{{"compute", &RankTimes::compute},
                                           {"communication", &RankTimes::communication},
                                           {"data", &RankTimes::data},
                                           {"other", &RankTimes::other}}};
  double longest = 0;
  for (const RankTimes& rank : report.ranks)
    longest = std::max(longest, rank.data + rank.compute + rank.communication + rank.other);
  std::string legend;
  for (std::size_t i = 0; i < kKinds.size(); ++i)
    legend += fmt::format("<span><i class=\"swatch t{}\"></i>{}</span>", i + 1, kKinds[i].name);
  std::string rows;
  for (const RankTimes& rank : report.ranks) {
    std::string bar;
    const double all = rank.data + rank.compute + rank.communication + rank.other;
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      const double seconds = std::max(rank.*kKinds[i].seconds, 0.0);
      const double width = longest > 0 ? 100 * seconds / longest : 0;
      if (width < 0.05) continue;
      bar +=
          fmt::format("<i class=\"t{}\" style=\"width:{:.2f}%\" title=\"{} {:.1f} s\">{}</i>", i + 1, width,
                      kKinds[i].name, seconds, width >= 9 ? fmt::format("{:.0f}&thinsp;%", 100 * seconds / all) : "");
    }
    rows += fmt::format(
        "<tr><th>{}<small>{}</small></th><td class=\"stack\"><div>{}</div></td><td>{:.1f} "
        "s</td><td>{}</td><td>{}</td></tr>",
        rank.rank, Escaped(rank.device), bar, all, base::FormatThousands(static_cast<long long>(rank.samples)),
        rank.peak_memory ? base::FormatByteSize(*rank.peak_memory) : std::string(base::kAbsent));
  }
  return "<p class=\"legend\">" + legend +
         "</p><div class=\"wide\"><table class=\"times\"><thead><tr><th>rank</th><th>where its time went</th><th>in "
         "all</th>"
         "<th>samples</th><th>peak memory</th></tr></thead><tbody>" +
         rows + "</tbody></table></div>";
}

std::string ScalingSection(const RunReport& report) {
  const std::optional<Scaling> scaling = ScalingOf(report);
  if (!scaling) return {};
  const double ideal = scaling->single_card * scaling->cards;
  const double longest = std::max(ideal, report.samples_per_second);
  const auto row = [&](const std::string& name, double speed, const char* kind) {
    return fmt::format(
        "<tr><th>{}</th><td class=\"stack\"><div><i class=\"{}\" "
        "style=\"width:{:.2f}%\"></i></div></td><td>{:.1f}</td></tr>",
        name, kind, 100 * speed / longest, speed);
  };
  return fmt::format("<p>{} cards train <b>{:.2f} times</b> as fast as one, which is <b>{:.0f} %</b> of {} times.</p>",
                     scaling->cards, scaling->factor, 100 * scaling->efficiency, scaling->cards) +
         "<div class=\"wide\"><table "
         "class=\"times\"><thead><tr><th></th><th></th><th>samples/s</th></tr></thead><tbody>" +
         row("one card", scaling->single_card, "t4") +
         row(fmt::format("{} cards", scaling->cards), report.samples_per_second, "t1") +
         row(fmt::format("{} × one card", scaling->cards), ideal, "hollow") + "</tbody></table></div>";
}

std::string VerifiedSection(const RunReport& report) {
  std::string list;
  for (const Verified& one : report.verified)
    list += fmt::format("<li><b>{}</b><span>{}</span></li>", Escaped(one.what), Escaped(one.evidence));
  return list.empty() ? "" : "<ul class=\"verified\">" + list + "</ul>";
}

}  // namespace

std::string HtmlOf(const RunReport& report) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
         // Nothing may be loaded or run, even if something gets past the escaping.
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
         "'unsafe-inline'\">"
         "<meta name=\"color-scheme\" content=\"light dark\"><title>" +
         Escaped(report.title) + "</title><style>" + kPageStyle + "</style></head>\n<body><main>" + Head(report) +
         Warnings(report) + Facts(report) + Section("Curves", Curves(report)) + Section("Classes", Classes(report)) +
         Section("Examples", Examples(report)) + Section("Time", Times(report)) +
         Section("Scaling", ScalingSection(report)) + Section("Verified", VerifiedSection(report)) +
         "</main></body></html>\n";
}

}  // namespace fulldeck::report
