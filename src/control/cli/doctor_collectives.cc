// fulldeck doctor --collectives: the proof of the collectives, as text and as JSON; and its ranks.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/files/system_root.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/host_memory.h"
#include "cli/command.h"
#include "cli/doctor_proofs.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/watch.h"
#include "doctor/collectives/collectives_rank.h"

namespace fulldeck::cli {
namespace {

using doctor::Finding;
using doctor::OperationFigures;
using doctor::PairFigures;
using doctor::ProofReport;
using doctor::SizeFigure;
using doctor::Verdict;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;
// A larger matrix is wider than a terminal; the slow pairs are listed in any case.
constexpr int kLargestMatrix = 16;

const std::string& In(const base::BilingualText& text, bool chinese) {
  return chinese ? text.chinese : text.english;
}

std::string Time(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

// GB/s, with two significant digits.
std::string Speed(double bytes_per_second) {
  const double speed = bytes_per_second * 1e-9;
  return speed < 0.1 ? fmt::format("{:.2g}", speed) : fmt::format("{:.2f}", speed);
}

std::string Matrix(const ProofReport& report) {
  base::TextTable table;
  table.AddColumn("GB/s", base::Align::kRight);
  for (int to = 0; to < report.ranks; ++to) table.AddColumn(std::to_string(to), base::Align::kRight);
  doctor::SlowPairs slow = doctor::FindSlowPairs(report.pairs);
  // Short messages are not judged.
  const bool judged = std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return !finding.figures.empty() && finding.figures.front().second == "slow-pair";
  });
  if (!judged) slow.slow.clear();
  for (int from = 0; from < report.ranks; ++from) {
    std::vector<base::Cell> row = {{std::to_string(from), base::Color::kBold}};
    for (int to = 0; to < report.ranks; ++to) {
      const auto pair = std::find_if(report.pairs.begin(), report.pairs.end(), [&](const PairFigures& one) {
        return one.from == std::min(from, to) && one.to == std::max(from, to);
      });
      const bool is_slow = std::any_of(slow.slow.begin(), slow.slow.end(), [&](const PairFigures& one) {
        return one.from == std::min(from, to) && one.to == std::max(from, to);
      });
      row.push_back(
          {pair == report.pairs.end() ? "·" : fmt::format("{}{}", Speed(pair->bytes_per_second), is_slow ? "!" : ""),
           is_slow ? base::Color::kRed : base::Color::kNone});
    }
    table.AddRow(std::move(row));
  }
  return table.Render(false);
}

}  // namespace

std::string CollectivesText(const ProofReport& report, bool chinese, bool colors) {
  const bool measured = report.memory_bytes_per_second > 0;
  const std::string memory = Speed(report.memory_bytes_per_second);
  std::string text = chinese ? fmt::format("{}（{}）：{} 个 rank，{} 个处理器", report.backend, report.about,
                                           report.ranks, report.cpus)
                             : fmt::format("{} ({}): {} on {}", report.backend, report.about,
                                           base::Counted(static_cast<std::uint64_t>(report.ranks), "rank"),
                                           base::Counted(static_cast<std::uint64_t>(report.cpus), "processor"));
  if (measured) {
    text += chinese ? fmt::format("；内存带宽 {} GB/s（刚才实测）", memory)
                    : fmt::format("; memory {} GB/s, measured now", memory);
  }
  if (report.busy) {
    text += chinese ? fmt::format("；负载 {:.1f}，速度不作评判", report.load)
                    : fmt::format("; load {:.1f}, too much to judge speeds", report.load);
  }
  text += "\n\n";
  base::TextTable table;
  table.AddColumn(chinese ? "集合通信" : "collective", base::Align::kLeft);
  table.AddColumn(chinese ? "正确" : "right", base::Align::kRight);
  table.AddColumn(chinese ? "核对的值" : "values", base::Align::kRight);
  std::vector<std::uint64_t> sizes;
  for (const OperationFigures& one : report.operations) {
    for (const SizeFigure& size : one.sizes) {
      if (size.bytes > 0 && std::find(sizes.begin(), sizes.end(), size.bytes) == sizes.end() &&
          one.name == "all_reduce")
        sizes.push_back(size.bytes);
    }
  }
  for (const std::uint64_t bytes : sizes) table.AddColumn(base::FormatByteSize(bytes), base::Align::kRight);
  table.AddColumn(chinese ? "内存允许" : "memory allows", base::Align::kRight);
  for (const OperationFigures& one : report.operations) {
    if (one.name == "send_receive") continue;
    std::vector<base::Cell> row = {{one.name}, {std::to_string(one.steps)}, {std::to_string(one.checked)}};
    std::optional<double> possible;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      // Chunks are rounded up, so find a size by its position.
      const SizeFigure* size = i < one.sizes.size() ? &one.sizes[i] : nullptr;
      row.push_back({size != nullptr ? Time(size->seconds) : base::kAbsent});
      if (size != nullptr && size->possible) possible = size->possible;
    }
    row.push_back({possible ? Time(*possible) : base::kAbsent});
    table.AddRow(std::move(row));
  }
  text += table.Render(colors);
  for (const OperationFigures& one : report.operations) {
    if (one.cannot)
      text +=
          fmt::format(fmt::runtime(chinese ? "{} 没有：{}\n" : "{} does not offer: {}\n"), report.backend, *one.cannot);
  }
  if (!report.pairs.empty()) {
    const doctor::SlowPairs slow = doctor::FindSlowPairs(report.pairs);
    double latency = 0;
    for (const PairFigures& pair : report.pairs) latency = std::max(latency, pair.latency_seconds);
    // In and out of shared memory: each byte is loaded and stored twice.
    const std::string allowed = measured ? Speed(report.memory_bytes_per_second / 4) : base::kAbsent;
    const std::string median = Speed(slow.median_bytes_per_second);
    const std::string bytes = base::FormatByteSize(report.pair_bytes);
    text += chinese ? fmt::format("\n{} 对 rank，{}，单向：中位数 {} GB/s（内存允许 {}），最大延迟 {}\n",
                                  report.pairs.size(), bytes, median, allowed, Time(latency))
                    : fmt::format("\n{} of ranks, {} one way: median {} GB/s (memory allows {}), largest latency {}\n",
                                  base::Counted(report.pairs.size(), "pair"), bytes, median, allowed, Time(latency));
    if (report.ranks <= kLargestMatrix && report.ranks > 2) text += Matrix(report);
  }
  text += "\n";
  for (const Finding& finding : report.findings) {
    const int color = finding.verdict == Verdict::kFail ? 31 : 33;
    const std::string mark = finding.verdict == Verdict::kFail   ? "FAIL"
                             : finding.verdict == Verdict::kWarn ? "WARN"
                                                                 : "CANNOT TELL";
    text += fmt::format("{} {}{}\n  → {}\n", colors ? fmt::format("\x1b[{}m{}\x1b[0m", color, mark) : mark,
                        finding.row.empty() ? "" : finding.row + " ", In(finding.evidence, chinese),
                        In(finding.fix, chinese));
  }
  if (report.interrupted)
    text += chinese ? "已中断；以上是到此为止的结果。\n" : "interrupted; what was tried until then stands above\n";
  if (report.findings.empty() && !report.interrupted) {
    text += chinese ? fmt::format("全部正确：核对了 {} 个值。\n", report.checked)
                    : fmt::format("all is right: {} values were checked\n", report.checked);
  }
  return text;
}

std::string CollectivesJson(const ProofReport& report, bool chinese) {
  Json operations = Json::array();
  for (const OperationFigures& one : report.operations) {
    Json sizes = Json::array();
    for (const SizeFigure& size : one.sizes) {
      sizes.push_back({{"bytes", size.bytes},
                       {"seconds", size.seconds},
                       {"memory_allows_seconds", size.possible ? Json(*size.possible) : Json()}});
    }
    operations.push_back({{"operation", one.name},
                          {"right", one.steps},
                          {"checked", one.checked},
                          {"sizes", sizes},
                          {"not_offered", one.cannot ? Json(*one.cannot) : Json()}});
  }
  Json pairs = Json::array();
  for (const PairFigures& pair : report.pairs) {
    pairs.push_back({{"ranks", {pair.from, pair.to}},
                     {"latency_seconds", pair.latency_seconds},
                     {"bytes_per_second", pair.bytes_per_second}});
  }
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    Json figures = Json::object();
    for (const auto& [name, value] : finding.figures) figures[name] = value;
    findings.push_back({{"verdict", doctor::NameOf(finding.verdict)},
                        {"row", finding.row},
                        {"evidence", In(finding.evidence, chinese)},
                        {"cure", In(finding.fix, chinese)},
                        {"figures", figures}});
  }
  const Json object = {{"version", kJsonVersion},
                       {"backend", report.backend},
                       {"about", report.about},
                       {"ranks", report.ranks},
                       {"processors", report.cpus},
                       {"memory_bytes_per_second", report.memory_bytes_per_second},
                       {"load", report.load},
                       {"checked", report.checked},
                       {"operations", operations},
                       {"pair_bytes", report.pair_bytes},
                       {"pairs", pairs},
                       {"median_pair_bytes_per_second", doctor::FindSlowPairs(report.pairs).median_bytes_per_second},
                       {"findings", findings},
                       {"interrupted", report.interrupted}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

wire::ExitCode ProveCollectivesHere(const ProofOptions& options, const device::Inventory& inventory) {
  doctor::ProofPlan plan;
  plan.backend = options.backend;
  plan.ranks = options.nproc > 0 ? options.nproc : doctor::RanksFor(inventory);
  if (!options.python.empty()) plan.python = options.python;
  plan.timeout_seconds = options.timeout_seconds;
  plan.fault = options.fault;
  const auto refuse = [](const std::string& message) {
    base::Log(base::Severity::kError, message);
    return wire::ExitCode::kUsage;
  };
  for (const std::string_view part : base::Split(options.sizes, ',')) {
    const auto bytes = base::ParseByteSize(base::Trim(part));
    if (!bytes || *bytes == 0)
      return refuse(fmt::format("--sizes: '{}' is no size; right forms: 4096, 64KiB, 1.5GiB", base::Printable(part)));
    plan.sizes.push_back(*bytes);
  }
  if (const auto chosen = doctor::ChooseDevices(inventory, plan); !chosen) return refuse(chosen.error().message);
  // The memory of the largest step: input and output of every rank, and the data in shared memory.
  const std::uint64_t need =
      *std::max_element(plan.sizes.begin(), plan.sizes.end()) * 3 * static_cast<std::uint64_t>(plan.ranks);
  const auto available = bench::AvailableMemory(base::SystemRoot());
  // A number of ranks above the limit of a group is rejected elsewhere.
  if (available && need > *available && plan.ranks <= doctor::kMaxRanks) {
    return refuse(fmt::format(
        "--sizes with {} ranks needs about {} of memory, and {} are free; take smaller --sizes or fewer --nproc",
        plan.ranks, base::FormatByteSize(need), base::FormatByteSize(*available)));
  }
  const auto log_line = [](const std::string& line) { base::Log(base::Severity::kInfo, line); };
  const auto report = doctor::ProveCollectives(plan, base::Environment::OfThisProcess(), log_line);
  if (!report) {
    base::Log(base::Severity::kError, report.error().message);
    return wire::ExitCode::kFailed;
  }
  const wire::ExitCode printed = Print(options.json ? CollectivesJson(*report, options.chinese)
                                                    : CollectivesText(*report, options.chinese, StdoutWantsColor()));
  if (report->interrupted) return wire::ExitCode::kFailed;
  const bool fails = std::any_of(report->findings.begin(), report->findings.end(),
                                 [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
  return fails ? wire::ExitCode::kCheckFailed : printed;
}

// The program that the doctor starts as a rank. Internal, so not in the help.
Action AddDoctorRank(CLI::App& app) {
  auto rank = std::make_shared<doctor::ProofRank>();
  CommandOptions command(app, "doctor-rank", "One rank of a proof");
  command.Hide();
  command.Option("SOCKET", rank->socket).Required();
  command.Option("PROGRESS", rank->progress).Required();
  command.Option("--rank", rank->rank);
  command.Option("--size", rank->ranks);
  command.Option("--timeout", rank->timeout_seconds);
  command.Option("--inject", rank->fault);
  return [rank] {
    rank->key = rank->socket;
    return doctor::RunProofRank(*rank) == 0 ? wire::ExitCode::kOk : wire::ExitCode::kFailed;
  };
}

}  // namespace fulldeck::cli
