#include "cli/doctor_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/text_table.h"

namespace fulldeck::cli {
namespace {

using base::BilingualText;
using doctor::Check;
using doctor::CheckReport;
using doctor::Finding;
using doctor::Group;
using doctor::Verdict;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;

const std::string& In(const base::BilingualText& text, bool chinese) {
  return chinese && !text.chinese.empty() ? text.chinese : text.english;
}

std::string GroupTitle(Group group, bool chinese) {
  if (!chinese) return std::string(doctor::NameOf(group));
  switch (group) {
    case Group::kMachine:
      return "机器";
    case Group::kCards:
      return "加速卡";
    case Group::kStack:
      return "软件栈";
    case Group::kContainer:
      return "容器";
    case Group::kNetwork:
      return "网络";
    case Group::kStorage:
      return "存储";
  }
  return "";
}

std::string VerdictLabel(Verdict verdict, bool chinese) {
  if (!chinese) return std::string(doctor::NameOf(verdict));
  switch (verdict) {
    case Verdict::kOk:
      return "正常";
    case Verdict::kWarn:
      return "警告";
    case Verdict::kFail:
      return "失败";
    case Verdict::kCannotTell:
      return "无法判断";
  }
  return "";
}

const char* ColorOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "\x1b[32m";
    case Verdict::kWarn:
      return "\x1b[33m";
    case Verdict::kFail:
      return "\x1b[31m";
    case Verdict::kCannotTell:
      return "\x1b[2m";
  }
  return "";
}

std::string Padded(const std::string& text, std::size_t width) {
  const std::size_t taken = base::DisplayWidth(text);
  return text + std::string(width > taken ? width - taken : 0, ' ');
}

constexpr std::array kVerdicts = {Verdict::kOk, Verdict::kWarn, Verdict::kFail, Verdict::kCannotTell};

std::array<int, kVerdicts.size()> Count(const std::vector<CheckReport>& reports) {
  std::array<int, kVerdicts.size()> counts{};
  for (const CheckReport& report : reports) {
    if (!report.findings.empty()) ++counts[static_cast<std::size_t>(doctor::Worst(report.findings))];
  }
  return counts;
}

// A "|" inside a cell would end it.
std::string MarkdownCell(std::string_view text) {
  std::string cell;
  for (const char letter : text) {
    if (letter == '|') cell += '\\';
    cell += letter;
  }
  return cell;
}

}  // namespace

std::string DoctorText(const std::vector<CheckReport>& reports, const DoctorReportOptions& options) {
  const bool chinese = options.chinese;
  std::size_t verdict_width = 0;
  std::size_t id_width = 0;
  for (const Verdict verdict : kVerdicts) {
    verdict_width = std::max(verdict_width, base::DisplayWidth(VerdictLabel(verdict, chinese)));
  }
  for (const CheckReport& report : reports) {
    if (!report.findings.empty()) id_width = std::max(id_width, report.check->id.size());
  }
  const std::string indent(2 + verdict_width + 2 + id_width + 2, ' ');
  std::string text;
  const Group* group = nullptr;
  for (const CheckReport& report : reports) {
    if (report.findings.empty()) continue;
    if (group == nullptr || *group != report.check->group) {
      if (group != nullptr) text += "\n";
      group = &report.check->group;
      const std::string title = GroupTitle(*group, chinese);
      text += options.colors ? "\x1b[1m" + title + "\x1b[0m\n" : title + "\n";
    }
    for (const Finding& finding : report.findings) {
      const std::string word = VerdictLabel(finding.verdict, chinese);
      const std::string gap(verdict_width - base::DisplayWidth(word), ' ');
      text += fmt::format("  {}{}{}{}  {}  {}{}\n", options.colors ? ColorOf(finding.verdict) : "", word,
                          options.colors ? "\x1b[0m" : "", gap, Padded(std::string(report.check->id), id_width),
                          In(finding.evidence, chinese), finding.row.empty() ? "" : " [" + finding.row + "]");
      if (finding.verdict != Verdict::kOk && !In(finding.fix, chinese).empty()) {
        text += indent + "→ " + In(finding.fix, chinese) + "\n";
      }
    }
  }
  const auto counts = Count(reports);
  std::vector<std::string> parts;
  int all = 0;
  for (const Verdict verdict : kVerdicts) {
    const int count = counts[static_cast<std::size_t>(verdict)];
    all += count;
    if (count == 0) continue;
    parts.push_back(chinese ? fmt::format("{} {}", VerdictLabel(verdict, true), count)
                            : fmt::format("{} {}", count, VerdictLabel(verdict, false)));
  }
  const double seconds = std::chrono::duration<double>(options.took).count();
  text += chinese ? fmt::format("\n{} 项检查，用时 {:.1f} 秒：{}\n", all, seconds, base::Join(parts, "，"))
                  : fmt::format("\n{} in {:.1f} s: {}\n", base::Counted(static_cast<std::uint64_t>(all), "check"),
                                seconds, base::Join(parts, ", "));
  return text;
}

std::string DoctorJson(const std::vector<CheckReport>& reports, const doctor::MachineUnderTest& machine,
                       const DoctorReportOptions& options) {
  const auto counts = Count(reports);
  Json object = {{"version", kJsonVersion},  {"deep", machine.deep},
                 {"ranks", machine.ranks},   {"seconds", std::chrono::duration<double>(options.took).count()},
                 {"counts", Json::object()}, {"checks", Json::array()}};
  for (const Verdict verdict : kVerdicts) {
    object["counts"][std::string(doctor::NameOf(verdict))] = counts[static_cast<std::size_t>(verdict)];
  }
  for (const CheckReport& report : reports) {
    if (report.findings.empty()) continue;
    Json findings = Json::array();
    for (const Finding& finding : report.findings) {
      Json figures = Json::object();
      for (const auto& [name, value] : finding.figures) figures[name] = value;
      const bool has_fix = finding.verdict != Verdict::kOk && !finding.fix.english.empty();
      findings.push_back({{"verdict", doctor::NameOf(finding.verdict)},
                          {"row", finding.row.empty() ? Json() : Json(finding.row)},
                          {"evidence", In(finding.evidence, options.chinese)},
                          {"cure", has_fix ? Json(In(finding.fix, options.chinese)) : Json()},
                          {"figures", std::move(figures)}});
    }
    object["checks"].push_back({{"id", report.check->id},
                                {"group", doctor::NameOf(report.check->group)},
                                {"verdict", doctor::NameOf(doctor::Worst(report.findings))},
                                {"seconds", std::chrono::duration<double>(report.took).count()},
                                {"findings", std::move(findings)}});
  }
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ChecksTable(std::span<const Check> checks, bool chinese) {
  std::string text = chinese ? "| 检查 | 组 | 做什么 | 证明什么 | 故障编号 |\n|---|---|---|---|---|\n"
                             : "| check | group | what it does | what it proves | rows |\n|---|---|---|---|---|\n";
  for (const Check& check : checks) {
    const doctor::CheckTexts& texts = doctor::TextsOf(check);
    text += fmt::format("| {} | {}{} | {} | {} | {} |\n", check.id, doctor::NameOf(check.group),
                        check.only_deep ? " (`--deep`)" : "", MarkdownCell(In(texts.does, chinese)),
                        MarkdownCell(In(texts.proves, chinese)), texts.rows);
  }
  return text;
}

}  // namespace fulldeck::cli
