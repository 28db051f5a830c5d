#include "report/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "base/text_table.h"

namespace fulldeck::report {
namespace {

struct Field {
  std::string text;
  int weight = 0;  // the field with the lowest weight is dropped first if there is no room
};

std::vector<Field> FieldsOf(const Progress& progress) {
  std::vector<Field> fields;
  if (progress.total > 0) {
    fields.push_back({fmt::format("step {}/{}", progress.step, progress.total), 9});
    const double share = std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.total), 0.0, 1.0);
    // Rounded down: 100 % is printed only at the end.
    fields.push_back({fmt::format("{}%", static_cast<int>(share * 100)), 2});
  } else {
    fields.push_back({fmt::format("step {}", progress.step), 9});
  }
  if (progress.loss) fields.push_back({fmt::format("loss {:.4f}", *progress.loss), 8});
  if (progress.lr) fields.push_back({fmt::format("lr {:.2g}", *progress.lr), 1});
  if (progress.samples_per_second) {
    const double speed = *progress.samples_per_second;
    fields.push_back({speed < 10 ? fmt::format("{:.2f} samples/s", speed) : fmt::format("{:.0f} samples/s", speed), 4});
  }
  if (progress.seconds_left) fields.push_back({"ETA " + FormatDuration(*progress.seconds_left), 7});
  if (progress.cards_busy) {
    fields.push_back(
        {fmt::format("cards {}/{} busy{}", *progress.cards_busy, progress.ranks,
                     progress.cards_unknown > 0 ? fmt::format(", {} unknown", progress.cards_unknown) : ""),
         5});
  } else if (progress.ranks_busy) {
    fields.push_back({fmt::format("ranks {}/{}", *progress.ranks_busy, progress.ranks), 5});
  }
  if (progress.metric)
    fields.push_back({fmt::format("{} {:.4f}", base::Printable(progress.metric_name), *progress.metric), 3});
  return fields;
}

std::string Joined(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) {
    if (!line.empty()) line += "  ";
    line += field.text;
  }
  return line;
}

}  // namespace

std::string ProgressLine(const Progress& progress) {
  return Joined(FieldsOf(progress));
}

std::string TerminalProgress(const Progress& progress, int columns) {
  std::vector<Field> fields = FieldsOf(progress);
  // Some terminals wrap after the last column.
  const std::size_t room = static_cast<std::size_t>(std::max(columns - 1, 1));
  while (fields.size() > 1 && base::DisplayWidth(Joined(fields)) > room) {
    fields.erase(std::min_element(fields.begin(), fields.end(),
                                  [](const Field& a, const Field& b) { return a.weight < b.weight; }));
  }
  std::string line = Joined(fields);
  if (base::DisplayWidth(line) > room) line.resize(std::min(line.size(), room));
  return "\r" + line + "\x1b[K";
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return base::kAbsent;
  const auto whole = static_cast<std::int64_t>(std::min(seconds + 0.5, 1e12));
  const std::int64_t days = whole / 86400;
  const std::int64_t hours = whole / 3600 % 24;
  const std::int64_t minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{} d {} h", days, hours);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace fulldeck::report
