#include "lint/script_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/files/whole_file.h"
#include "base/text.h"

namespace fulldeck::lint {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr std::size_t kMaxFiles = 64;

std::string FolderOf(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The strings of `_base_ = …` with their lines; expressions are skipped.
std::vector<std::pair<std::string, int>> BasesOf(const Script& script) {
  std::vector<std::pair<std::string, int>> bases;
  for (const Assignment& assignment : script.assignments()) {
    if (assignment.target != "_base_") continue;
    for (std::size_t i = assignment.value.begin; i < assignment.value.end; ++i) {
      const Token& token = script.tokens()[i];
      if (token.kind == TokenKind::kString && !token.formatted) bases.emplace_back(token.content, token.line);
    }
  }
  return bases;
}

class Checking {
 public:
  explicit Checking(const ScriptMachine& machine) : machine_(machine) {}

  base::Result<void> ReadFile(const std::string& file, bool is_script) {
    std::error_code ignored;
    const std::string canonical = std::filesystem::weakly_canonical(file, ignored).string();
    if (report.files.size() >= kMaxFiles || !seen_.insert(canonical.empty() ? file : canonical).second) return {};
    auto text = base::ReadWholeFile(file, kLargestFile);
    if (!text) return text.error();
    report.files.push_back(base::Printable(file));
    if (file.ends_with(".yaml") || file.ends_with(".yml")) {
      Take(TrapsInYaml(*text, base::Printable(file), machine_));
      return {};
    }
    if (!file.ends_with(".py") && !is_script) return {};
    const Script script(std::move(*text));
    auto hits = TrapsIn(script, base::Printable(file), FolderOf(file), machine_);
    if (is_script) {
      sets_launcher_ = std::any_of(script.assignments().begin(), script.assignments().end(),
                                   [](const Assignment& assignment) { return assignment.target == "launcher"; });
    } else if (sets_launcher_) {
      std::erase_if(hits, [](const TrapHit& hit) { return hit.trap->id == "launcher-none"; });
    }
    Take(std::move(hits));
    for (const auto& [base, line] : BasesOf(script)) {
      // mmseg::_base_/… is in a package.
      if (base.find("::") != std::string::npos || base.find("://") != std::string::npos) continue;
      const std::string path =
          (base.starts_with("/") ? std::filesystem::path(base) : std::filesystem::path(FolderOf(file)) / base)
              .lexically_normal()
              .string();
      const auto read = ReadFile(path, false);
      if (!read) Missing(base::Printable(file), line, script.Line(line), read.error());
    }
    return {};
  }

  void Missing(const std::string& file, int line, std::string_view text, const base::Error& error) {
    const std::string shown = base::Printable(error.message);
    report.hits.push_back({&FindTrap("config-missing"), file, line, base::Printable(text), {shown, shown}});
  }

  ScriptReport report;

 private:
  void Take(std::vector<TrapHit> hits) {
    for (TrapHit& hit : hits) report.hits.push_back(std::move(hit));
  }

  const ScriptMachine& machine_;
  std::set<std::string> seen_;
  bool sets_launcher_ = false;
};

std::string_view WithoutQuotes(std::string_view value) {
  if (value.size() >= 2 && (value.front() == '\'' || value.front() == '"') && value.back() == value.front()) {
    return value.substr(1, value.size() - 2);
  }
  return value;
}

}  // namespace

base::Result<ScriptReport> CheckScript(const std::vector<std::string>& files, const ScriptMachine& machine) {
  Checking checking(machine);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto read = checking.ReadFile(files[i], i == 0);
    if (read) continue;
    if (i == 0) return read.error();
    checking.Missing(base::Printable(files[i]), 0, "", read.error());
  }
  return std::move(checking.report);
}

std::vector<TrapHit> TrapsInYaml(const std::string& text, const std::string& file, const ScriptMachine& machine) {
  struct Entry {
    std::string value;
    int line;
    std::string text;
  };
  std::map<std::string, Entry, std::less<>> entries;
  int line = 0;
  for (const std::string_view whole : base::Split(text, '\n')) {
    ++line;
    if (whole.empty() || whole.front() == ' ' || whole.front() == '#' || whole.front() == '-') continue;
    const std::size_t colon = whole.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view value = base::Trim(whole.substr(colon + 1));
    if (const std::size_t comment = value.find(" #"); comment != std::string_view::npos)
      value = base::Trim(value.substr(0, comment));
    entries.emplace(whole.substr(0, colon),
                    Entry{std::string(WithoutQuotes(value)), line, base::Printable(whole.substr(0, 160))});
  }
  std::vector<TrapHit> hits;
  if (!entries.contains("distributed_type") && !entries.contains("compute_environment")) return hits;
  const auto number_of = [&](std::string_view key) -> std::optional<long> {
    const auto found = entries.find(key);
    return found == entries.end() ? std::nullopt : base::ParseInteger<long>(found->second.value);
  };
  const auto hit = [&](std::string_view trap, std::string_view key, base::BilingualText detail) {
    const Entry& entry = entries.find(key)->second;
    hits.push_back({&FindTrap(trap), file, entry.line, entry.text, std::move(detail)});
  };
  const long machines = number_of("num_machines").value_or(1);
  const auto processes = number_of("num_processes");
  if (processes && machines == 1 && *processes != machine.ranks) {
    hit("accelerate-processes", "num_processes",
        {fmt::format("{} there, {} here", *processes, machine.ranks),
         fmt::format("文件为 {}，本机为 {}", *processes, machine.ranks)});
  }
  const auto type = entries.find("distributed_type");
  if (type != entries.end()) {
    const std::string& word = type->second.value;
    const bool alone = word == "NO" || word == "No" || word == "no" || word == "false";
    const bool wrong = (alone && machine.ranks > 1) || (word == "MULTI_GPU" && machine.cards == 0) ||
                       (word == "MULTI_CPU" && machine.cards > 0);
    if (wrong) {
      hit("accelerate-type", "distributed_type",
          {fmt::format("{}, and this machine has {} and would run {}", base::Printable(word),
                       base::Counted(static_cast<std::uint64_t>(machine.cards), "card"),
                       base::Counted(static_cast<std::uint64_t>(machine.ranks), "rank")),
           fmt::format("{}，而本机有 {} 张卡，任务会有 {} 个 rank", base::Printable(word), machine.cards,
                       machine.ranks)});
    }
  }
  const auto port = number_of("main_process_port");
  if (port && *port != 0 && machines == 1) hit("accelerate-port", "main_process_port", {});
  std::stable_sort(hits.begin(), hits.end(),
                   [](const TrapHit& one, const TrapHit& other) { return one.line < other.line; });
  return hits;
}

}  // namespace fulldeck::lint
