// fulldeck doctor --script: the traps of a script and its configs, as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/text.h"
#include "base/text_table.h"
#include "cli/doctor_proofs.h"
#include "cli/terminal.h"
#include "cli/watch.h"

namespace fulldeck::cli {
namespace {

using lint::Severity;
using lint::TrapHit;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;
constexpr std::size_t kMaxPlacesShown = 5;

const std::string& In(const base::BilingualText& text, bool chinese) {
  return chinese ? text.chinese : text.english;
}

std::string Mark(Severity severity, bool colors) {
  const bool fails = severity == Severity::kFail;
  const std::string word = fails ? "FAIL" : "WARN";
  return colors ? fmt::format("\x1b[{}m{}\x1b[0m", fails ? 31 : 33, word) : word;
}

}  // namespace

std::string ScriptText(const lint::ScriptReport& report, bool chinese, bool colors) {
  std::string text;
  for (const std::string& file : report.files) {
    std::vector<const lint::Trap*> traps;
    for (const TrapHit& hit : report.hits) {
      if (hit.file == file && std::find(traps.begin(), traps.end(), hit.trap) == traps.end()) traps.push_back(hit.trap);
    }
    if (!traps.empty()) text += file + "\n";
    for (const lint::Trap* trap : traps) {
      text +=
          fmt::format("  {} {} {}: {}\n", Mark(trap->severity, colors), trap->row, trap->id, In(trap->what, chinese));
      std::size_t places = 0;
      for (const TrapHit& hit : report.hits) {
        if (hit.trap != trap || hit.file != file || ++places > kMaxPlacesShown) continue;
        const std::string& detail = In(hit.detail, chinese);
        text += fmt::format("    {:>5}  {}{}\n", hit.line, hit.text, detail.empty() ? "" : "    [" + detail + "]");
      }
      if (places > kMaxPlacesShown) {
        text += fmt::format(fmt::runtime(chinese ? "           另有 {} 处\n" : "           and {} more\n"),
                            places - kMaxPlacesShown);
      }
      text += "    → " + In(trap->fix, chinese) + "\n";
    }
  }
  for (const TrapHit& hit : report.hits) {
    // A config that could not be read.
    if (std::find(report.files.begin(), report.files.end(), hit.file) != report.files.end()) continue;
    text +=
        fmt::format("{}\n  {} {} {}: {}    [{}]\n    → {}\n", hit.file, Mark(hit.trap->severity, colors), hit.trap->row,
                    hit.trap->id, In(hit.trap->what, chinese), In(hit.detail, chinese), In(hit.trap->fix, chinese));
  }
  const std::string files = base::Join(report.files, ", ");
  if (report.hits.empty())
    return fmt::format(fmt::runtime(chinese ? "{}：没有已知的陷阱。\n" : "{}: none of the known traps.\n"), files);
  const auto fails = std::count_if(report.hits.begin(), report.hits.end(),
                                   [](const TrapHit& hit) { return hit.trap->severity == Severity::kFail; });
  const auto warns = static_cast<std::ptrdiff_t>(report.hits.size()) - fails;
  text += chinese ? fmt::format("\n读了 {} 个文件：{} 处失败，{} 处警告。只读，没有运行任何代码。\n",
                                report.files.size(), fails, warns)
                  : fmt::format("\n{} read: {} to fail, {} to warn of. Nothing was run.\n",
                                base::Counted(report.files.size(), "file"),
                                base::Counted(static_cast<std::uint64_t>(fails), "place"),
                                base::Counted(static_cast<std::uint64_t>(warns), "place"));
  return text;
}

std::string ScriptJson(const lint::ScriptReport& report, const lint::ScriptMachine& machine, bool chinese) {
  Json findings = Json::array();
  for (const TrapHit& hit : report.hits) {
    findings.push_back({{"trap", hit.trap->id},
                        {"row", hit.trap->row},
                        {"verdict", hit.trap->severity == Severity::kFail ? "fail" : "warn"},
                        {"file", hit.file},
                        {"line", hit.line},
                        {"text", hit.text},
                        {"what", In(hit.trap->what, chinese)},
                        {"detail", In(hit.detail, chinese)},
                        {"cure", In(hit.trap->fix, chinese)}});
  }
  const Json object = {{"version", kJsonVersion},
                       {"files", report.files},
                       {"cards", machine.cards},
                       {"ranks", machine.ranks},
                       {"findings", findings}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

wire::ExitCode CheckScriptHere(const ProofOptions& options, const device::Inventory& inventory) {
  lint::ScriptMachine machine = lint::MachineOf(inventory, 1);
  machine.ranks = options.nproc > 0 ? options.nproc : std::max(1, machine.visible);
  const auto report = lint::CheckScript(options.script, machine);
  if (!report) {
    base::Log(base::Severity::kError, report.error().message);
    return wire::ExitCode::kUsage;
  }
  const wire::ExitCode printed = Print(options.json ? ScriptJson(*report, machine, options.chinese)
                                                    : ScriptText(*report, options.chinese, StdoutWantsColor()));
  const bool fails = std::any_of(report->hits.begin(), report->hits.end(),
                                 [](const TrapHit& hit) { return hit.trap->severity == Severity::kFail; });
  return fails ? wire::ExitCode::kCheckFailed : printed;
}

}  // namespace fulldeck::cli
