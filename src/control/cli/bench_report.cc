#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "base/text_table.h"

namespace fulldeck::cli {
namespace {

using bench::BenchFigures;
using bench::BenchPlan;
using bench::CellFigures;
using bench::CellOutcome;
using bench::CellTimeline;
using bench::Contender;
using bench::Figures;
using bench::StageSums;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;

const char* Title(Contender contender) {
  switch (contender) {
    case Contender::kFulldeck:
      return "FULLDECK";
    case Contender::kFulldeckShared:
      return "SHARED";
    case Contender::kTorch:
      return "VIA TORCH";
    case Contender::kGloo:
      return "GLOO";
    case Contender::kOpenMpi:
      return "OPENMPI";
  }
  return "";
}

const Figures* FiguresOf(const CellFigures& cell, Contender contender) {
  for (const CellOutcome& outcome : cell.outcomes) {
    if (outcome.contender == contender && outcome.figures) return &*outcome.figures;
  }
  return nullptr;
}

std::optional<double> ShareOfBound(const CellFigures& cell, Contender contender, const BenchFigures& figures) {
  const Figures* found = FiguresOf(cell, contender);
  if (found == nullptr || cell.bytes < bench::kMinBoundBytes || found->median <= 0) return std::nullopt;
  const auto bound =
      bench::MemoryBound(contender, *cell.operation, cell.ranks, cell.bytes, figures.memory_bytes_per_second);
  if (!bound) return std::nullopt;
  return *bound / found->median;
}

bool HasBound(Contender contender) {
  return contender == Contender::kFulldeck || contender == Contender::kFulldeckShared;
}

bool IsPeer(Contender contender) {
  return contender == Contender::kGloo || contender == Contender::kOpenMpi;
}

// The ratio of its time to that of the plan's first contender.
std::optional<double> BesideFirst(const CellFigures& cell, Contender contender, const BenchPlan& plan) {
  const Figures* first = FiguresOf(cell, plan.contenders.front());
  const Figures* other = FiguresOf(cell, contender);
  if (first == nullptr || other == nullptr || first->median <= 0) return std::nullopt;
  return other->median / first->median;
}

std::string TimesText(double times) {
  return times < 0.1 ? fmt::format("{:.1g} ×", times) : fmt::format("{:.{}f} ×", times, times < 10 ? 2 : 0);
}

base::Cell TimeCell(const CellFigures& cell, Contender contender) {
  const Figures* found = FiguresOf(cell, contender);
  if (found == nullptr) return {base::kAbsent};
  return {TimeText(found->median)};
}

base::Cell BesideCell(const CellFigures& cell, Contender contender, const BenchPlan& plan) {
  const auto beside = BesideFirst(cell, contender, plan);
  if (!beside) return {base::kAbsent};
  return {TimesText(*beside), *beside < 1 ? base::Color::kRed : base::Color::kNone};
}

std::string CellTable(const BenchPlan& plan, const BenchFigures& figures, const std::vector<const CellFigures*>& cells,
                      bool colors) {
  base::TextTable table;
  table.AddColumn(cells.front()->operation->has_size ? "SIZE" : "", base::Align::kRight);
  for (const Contender contender : plan.contenders) {
    table.AddColumn(Title(contender), base::Align::kRight);
    if (IsPeer(contender)) table.AddColumn("×", base::Align::kRight);
    if (HasBound(contender)) table.AddColumn("OF ESTIMATE", base::Align::kRight);
  }
  for (const CellFigures* cell : cells) {
    std::vector<base::Cell> row = {{cell->operation->has_size ? base::FormatByteSize(cell->bytes) : ""}};
    for (const Contender contender : plan.contenders) {
      row.push_back(TimeCell(*cell, contender));
      if (IsPeer(contender)) row.push_back(BesideCell(*cell, contender, plan));
      if (!HasBound(contender)) continue;
      const auto share = ShareOfBound(*cell, contender, figures);
      row.push_back({share ? fmt::format("{:.0f} %", *share * 100) : base::kAbsent});
    }
    table.AddRow(std::move(row));
  }
  return table.Render(colors);
}

std::string TimelineText(const CellTimeline& timeline, bool colors) {
  const StageSums all = bench::SumOf(timeline.by_rank);
  std::string text =
      fmt::format("\ntimeline of one all_reduce of {}, {} ranks, {} buffers ({})\n",
                  base::FormatByteSize(timeline.bytes), timeline.ranks, timeline.shared ? "shared" : "private",
                  timeline.by_rank.empty() ? "" : timeline.by_rank.front().about);
  base::TextTable table;
  table.AddColumn("RANK", base::Align::kRight);
  for (const char* title : {"IN", "REDUCE", "OUT", "WAIT", "WALL", "EVENTS"})
    table.AddColumn(title, base::Align::kRight);
  for (std::size_t rank = 0; rank < timeline.by_rank.size(); ++rank) {
    const StageSums one = bench::SumOf(timeline.by_rank[rank]);
    table.AddRow({{std::to_string(rank)},
                  {TimeText(one.in)},
                  {TimeText(one.reduce)},
                  {TimeText(one.out)},
                  {TimeText(one.wait)},
                  {TimeText(one.wall)},
                  {std::to_string(timeline.by_rank[rank].events.size())}});
  }
  text += table.Render(colors);
  if (all.wall > 0) {
    text += fmt::format("in + reduce + out of all ranks: {}, {:.2f} × the wall time of {}\n", TimeText(all.work()),
                        all.work() / all.wall, TimeText(all.wall));
  }
  return text;
}

std::string Notes(const BenchPlan& plan, const BenchFigures& figures) {
  std::string text = fmt::format(
      "\nTimes are the median over calls of each call's slowest rank; × is beside {}. Load before: {}; processors: "
      "{}.\n",
      plan.contenders.front() == Contender::kFulldeck ? "fulldeck with private buffers" : "fulldeck through torch",
      figures.load_before.empty() ? base::kAbsent : figures.load_before, figures.cpus);
  if (figures.memory_bytes_per_second > 0) {
    text += fmt::format(
        "Memory: {:.1f} GB/s loaded and stored by a += b on all processors. Bound of an all_reduce of S bytes and N "
        "ranks: "
        "(5N−2)·S, in shared buffers 2N·S.\n",
        figures.memory_bytes_per_second * 1e-9);
  }
  std::vector<std::string> reported;
  for (const bench::Presence& presence : figures.present) {
    const std::string line = fmt::format("{}: {}\n", bench::NameOf(presence.contender),
                                         presence.absent ? "left out: " + *presence.absent : presence.about);
    if (std::find(reported.begin(), reported.end(), line) == reported.end()) reported.push_back(line);
  }
  for (const std::string& line : reported) text += line;
  // What an available contender could not do, once for each reason.
  reported.clear();
  std::uint64_t checked = 0;
  for (const CellFigures& cell : figures.cells) {
    for (const CellOutcome& outcome : cell.outcomes) {
      if (outcome.figures) checked += outcome.figures->checked;
      const bool left_out = std::any_of(figures.present.begin(), figures.present.end(), [&](const auto& presence) {
        return presence.absent && presence.absent == outcome.why_not;
      });
      if (outcome.figures || left_out || outcome.why_not.empty() || outcome.why_not == bench::kFailedBefore) continue;
      const std::string line = fmt::format("{}: no {}: {}\n", bench::NameOf(outcome.contender), cell.operation->name,
                                           outcome.why_not.substr(0, outcome.why_not.find('\n')));
      if (std::find(reported.begin(), reported.end(), line) == reported.end()) reported.push_back(line);
    }
  }
  for (const std::string& line : reported) text += line;
  if (figures.wrong_values.empty()) {
    text += fmt::format("{} values of {} were checked, all of them right.\n", checked, plan.element->name);
  }
  return text;
}

Json OrNull(std::optional<double> value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ToJson(const CellFigures& cell, const BenchPlan& plan, const BenchFigures& figures) {
  Json results = Json::array();
  for (const CellOutcome& outcome : cell.outcomes) {
    Json result = {{"contender", bench::NameOf(outcome.contender)}};
    if (outcome.figures) {
      result["median_s"] = outcome.figures->median;
      result["p95_s"] = outcome.figures->p95;
      result["min_s"] = outcome.figures->least;
      result["calls"] = outcome.figures->calls;
      result["values_checked"] = outcome.figures->checked;
      result["times_of_first"] = OrNull(BesideFirst(cell, outcome.contender, plan));
      result["share_of_estimate"] = OrNull(ShareOfBound(cell, outcome.contender, figures));
    } else {
      result["median_s"] = nullptr;
      result["why_not"] = outcome.why_not;
    }
    results.push_back(std::move(result));
  }
  Json object = {{"ranks", cell.ranks}, {"operation", cell.operation->name}};
  object["bytes"] = cell.operation->has_size ? Json(cell.bytes) : Json(nullptr);
  object["count"] = cell.operation->has_size
                        ? Json(bench::ShapeOf(*cell.operation, *plan.element, cell.bytes, 0, cell.ranks).count)
                        : Json(nullptr);
  object["results"] = std::move(results);
  return object;
}

Json ToJson(const StageSums& sums) {
  return {
      {"in_s", sums.in}, {"reduce_s", sums.reduce}, {"out_s", sums.out}, {"wait_s", sums.wait}, {"wall_s", sums.wall}};
}

Json ToJson(const CellTimeline& timeline) {
  std::uint64_t begin = UINT64_MAX;
  for (const bench::RankTimeline& rank : timeline.by_rank) begin = std::min(begin, rank.begin_ns);
  const auto since = [&](std::uint64_t time_ns) { return time_ns > begin ? time_ns - begin : 0; };
  Json ranks = Json::array();
  for (const bench::RankTimeline& rank : timeline.by_rank) {
    Json events = Json::array();
    for (const bench::StageEvent& event : rank.events) {
      events.push_back({{"stage", bench::NameOf(event.stage)},
                        {"piece", event.chunk},
                        {"begin_ns", since(event.begin_ns)},
                        {"end_ns", since(event.end_ns)}});
    }
    ranks.push_back({{"begin_ns", since(rank.begin_ns)},
                     {"end_ns", since(rank.end_ns)},
                     {"sums", ToJson(bench::SumOf(rank))},
                     {"events", std::move(events)}});
  }
  const StageSums all = bench::SumOf(timeline.by_rank);
  Json object = {{"ranks", timeline.ranks}, {"bytes", timeline.bytes}, {"shared", timeline.shared}};
  object["group"] = timeline.by_rank.empty() ? "" : timeline.by_rank.front().about;
  object["sums"] = ToJson(all);
  object["work_of_wall"] = all.wall > 0 ? Json(all.work() / all.wall) : Json(nullptr);
  object["by_rank"] = std::move(ranks);
  return object;
}

}  // namespace

std::string TimeText(double seconds) {
  struct Unit {
    double in_seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}};
  for (const Unit& unit : kUnits) {
    const double value = seconds / unit.in_seconds;
    if (value < 0.9995 && unit.in_seconds > 1e-6) continue;
    return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit.name);
  }
  return base::kAbsent;
}

std::string BenchText(const BenchPlan& plan, const BenchFigures& figures, bool colors) {
  std::string text;
  for (std::size_t first = 0; first < figures.cells.size();) {
    const CellFigures& cell = figures.cells[first];
    std::vector<const CellFigures*> rows;
    for (; first < figures.cells.size(); ++first) {
      const CellFigures& next = figures.cells[first];
      if (next.ranks != cell.ranks || next.operation != cell.operation) break;
      rows.push_back(&next);
    }
    const std::string what = !cell.operation->has_size ? ""
                             : cell.operation->reduces ? fmt::format(" of {}, sum", plan.element->name)
                                                       : fmt::format(" of {}", plan.element->name);
    text += fmt::format("{}{}{}, {} ranks{}\n", text.empty() ? "" : "\n", cell.operation->name, what, cell.ranks,
                        plan.on_cuda ? ", CUDA tensors" : "");
    text += CellTable(plan, figures, rows, colors);
  }
  for (const CellTimeline& timeline : figures.timelines) text += TimelineText(timeline, colors);
  return text + Notes(plan, figures);
}

std::string BenchJson(const BenchPlan& plan, const BenchFigures& figures) {
  Json object = {{"version", kJsonVersion},
                 {"datatype", plan.element->name},
                 {"device", plan.on_cuda ? "cuda" : "cpu"},
                 {"seconds_a_cell", plan.seconds},
                 {"rounds", plan.rounds},
                 {"processors", figures.cpus},
                 {"load_before", figures.load_before},
                 {"interrupted", figures.interrupted}};
  object["memory_bytes_per_second"] =
      figures.memory_bytes_per_second > 0 ? Json(figures.memory_bytes_per_second) : Json(nullptr);
  object["contenders"] = Json::array();
  for (const bench::Presence& presence : figures.present) {
    Json one = {{"contender", bench::NameOf(presence.contender)}, {"ranks", presence.ranks}};
    one["about"] = presence.absent ? Json(nullptr) : Json(presence.about);
    one["absent"] = presence.absent ? Json(*presence.absent) : Json(nullptr);
    object["contenders"].push_back(std::move(one));
  }
  object["cells"] = Json::array();
  for (const CellFigures& cell : figures.cells) object["cells"].push_back(ToJson(cell, plan, figures));
  if (plan.timeline) {
    object["timelines"] = Json::array();
    for (const CellTimeline& timeline : figures.timelines) object["timelines"].push_back(ToJson(timeline));
  }
  object["wrong_values"] = figures.wrong_values;
  object["failures"] = figures.failures;
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fulldeck::cli
