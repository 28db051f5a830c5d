#include "report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files/whole_file.h"
#include "base/text.h"
#include "base/text_table.h"
#include "report/html_text.h"

namespace fulldeck::report {
namespace {

std::string Line(const std::string& text) {
  return base::Printable(text) + "\n";
}

void AppendTimes(std::string& text, const RunReport& report) {
  base::TextTable table(
      {"rank", "device", "data s", "compute s", "communication s", "other s", "samples", "peak memory"});
  for (const RankTimes& rank : report.ranks) {
    table.AddRow({std::to_string(rank.rank), base::Printable(rank.device), fmt::format("{:.1f}", rank.data),
                  fmt::format("{:.1f}", rank.compute), fmt::format("{:.1f}", rank.communication),
                  fmt::format("{:.1f}", rank.other), std::to_string(rank.samples),
                  rank.peak_memory ? base::FormatByteSize(*rank.peak_memory) : std::string(base::kAbsent)});
  }
  text += "\nTime of each rank\n" + table.Render();
}

}  // namespace

std::string TextOf(const RunReport& report) {
  std::string text = Line(report.title) + Line(report.outcome) + "\n";
  if (report.metric) text += fmt::format("{} {:.6f}\n\n", base::Printable(report.metric_name), *report.metric);
  std::size_t widest = 0;
  for (const auto& fact : report.facts) widest = std::max(widest, base::DisplayWidth(base::Printable(fact.first)));
  for (const auto& fact : report.facts) {
    const std::string name = base::Printable(fact.first);
    text += name + std::string(widest - base::DisplayWidth(name) + 2, ' ') + Line(fact.second);
  }
  if (report.scores) text += "\nScores\n" + ScoresText(*report.scores);
  if (!report.ranks.empty()) AppendTimes(text, report);
  if (report.samples_per_second > 0) text += fmt::format("\nSpeed: {:.1f} samples/s\n", report.samples_per_second);
  if (const std::optional<Scaling> scaling = ScalingOf(report)) {
    text +=
        fmt::format("One card: {:.1f} samples/s; {} cards are {:.2f} times as fast, {:.0f} % of {} times\n",
                    scaling->single_card, scaling->cards, scaling->factor, 100 * scaling->efficiency, scaling->cards);
  }
  if (!report.verified.empty()) {
    text += "\nVerified\n";
    for (const Verified& one : report.verified)
      text +=
          "  " + base::Printable(one.what) + (one.evidence.empty() ? "" : ": " + base::Printable(one.evidence)) + "\n";
  }
  if (!report.warnings.empty()) {
    text += "\nWarnings\n";
    for (const std::string& warning : report.warnings) text += "  " + Line(warning);
  }
  return text;
}

std::optional<Scaling> ScalingOf(const RunReport& report) {
  const auto cards = static_cast<int>(report.ranks.size());
  if (!report.single_card_samples_per_second || *report.single_card_samples_per_second <= 0 || cards < 2 ||
      report.samples_per_second <= 0)
    return std::nullopt;
  const double factor = report.samples_per_second / *report.single_card_samples_per_second;
  return Scaling{cards, *report.single_card_samples_per_second, factor, factor / cards};
}

base::Result<void> WriteReport(const std::string& folder, const RunReport& report) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return base::ErrnoError("cannot make the report's folder " + base::Printable(folder), failure.value());
  if (auto written = base::ReplaceFile(folder + "/report.html", HtmlOf(report)); !written) return written;
  return base::ReplaceFile(folder + "/report.txt", TextOf(report));
}

}  // namespace fulldeck::report
