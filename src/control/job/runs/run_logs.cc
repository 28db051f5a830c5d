#include "job/runs/run_logs.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/files/system_root.h"
#include "base/text.h"

namespace fulldeck::job {
namespace {

namespace fs = std::filesystem;

constexpr char kMergedLog[] = "/logs/train.log";
constexpr char kAttempt[] = "attempt_";

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool LooksLikeARun(const std::string& folder) {
  return IsFolder(folder) && (IsFolder(folder + "/logs") || LatestAttempt(folder).has_value());
}

// The later of folder and merged log: a long run does not modify its folder.
fs::file_time_type LastWritten(const std::string& folder) {
  std::error_code error;
  auto when = fs::last_write_time(folder, error);
  const auto log = fs::last_write_time(folder + kMergedLog, error);
  return !error && log > when ? log : when;
}

// Folders of runs below `runs` whose name begins with `prefix`, the newest first.
std::vector<std::string> FinishedRuns(const std::string& runs, std::string_view prefix) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  for (const std::string& name : base::SystemRoot().List(runs)) {
    const std::string folder = runs + "/" + name;
    if (name.starts_with(prefix) && LooksLikeARun(folder)) found.emplace_back(LastWritten(folder), folder);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> folders;
  for (const auto& [when, folder] : found) folders.push_back(folder);
  return folders;
}

RunLogs OfFolder(const std::string& folder) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return {base::Printable(fs::path(path).filename().string()), path, std::nullopt};
}

RunLogs OfEntry(const RunRegistry::Entry& entry) {
  return {entry.record.run_id, entry.record.directory, entry};
}

std::string RanksThere(const std::string& attempt_folder) {
  std::vector<int> ranks;
  for (const std::string& name : base::SystemRoot().List(attempt_folder)) {
    if (const auto rank = base::ParseInteger<int>(name)) ranks.push_back(*rank);
  }
  if (ranks.empty()) return "no rank has logs there";
  return fmt::format("local ranks {} to {} have logs there", *std::min_element(ranks.begin(), ranks.end()),
                     *std::max_element(ranks.begin(), ranks.end()));
}

// `fulldeck train` makes work_dirs/JOB/logs/train.log a link to RUN/logs/train.log. Returns the name of that run.
std::optional<std::string> LastRunOfJob(const std::string& folder) {
  const auto target = base::SystemRoot().ReadLink(folder + kMergedLog);
  if (!target || !target->ends_with(kMergedLog)) return std::nullopt;
  const std::string run = target->substr(0, target->size() - std::string_view(kMergedLog).size());
  if (run.empty() || run.find('/') != std::string::npos || !LooksLikeARun(folder + "/logs/" + run)) return std::nullopt;
  return run;
}

}  // namespace

base::Result<RunLogs> FindRunLogs(const RunRegistry& registry, std::string_view which,
                                  const std::string& working_directory) {
  const std::string runs = working_directory + "/" + kRunsFolder;
  if (which.empty()) {
    const auto entries = registry.List();
    const bool any = std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.alive; });
    if (any) {
      const auto running = registry.Find("");
      if (!running) return running.error();
      return OfEntry(*running);
    }
    const auto finished = FinishedRuns(runs, "");
    if (!finished.empty()) return OfFolder(finished.front());
    return base::Error{
        fmt::format("no run is running, and there is none below {}. Name a run directory: fulldeck logs DIR",
                    base::Printable(runs))};
  }
  const auto entry = registry.Find(which);
  if (entry) return OfEntry(*entry);
  const std::string given(which);
  const std::string folder = given.front() == '/' ? given : working_directory + "/" + given;
  if (const auto run = LastRunOfJob(folder)) {
    const auto running = registry.Find(*run);
    return running ? OfEntry(*running) : OfFolder(folder + "/logs/" + *run);
  }
  if (LooksLikeARun(folder)) return OfFolder(folder);
  if (which.find('/') == std::string_view::npos) {
    if (LooksLikeARun(runs + "/" + given)) return OfFolder(runs + "/" + given);
    const auto finished = FinishedRuns(runs, which);
    if (finished.size() == 1) return OfFolder(finished.front());
    if (finished.size() > 1) {
      std::vector<std::string> names;
      for (const std::string& each : finished) names.push_back(OfFolder(each).name);
      return base::Error{fmt::format("'{}' is not the beginning of one run alone: {}", base::Printable(which),
                                     base::Join(names, ", "))};
    }
  }
  if (IsFolder(folder)) {
    return base::Error{
        fmt::format("{} is no run directory: it has neither logs/ nor attempt_0/", base::Printable(folder))};
  }
  return base::Error{
      fmt::format("{} Nor is there a run directory of that name here or in {}/.", entry.error().message, kRunsFolder)};
}

std::optional<int> LatestAttempt(const std::string& run_directory) {
  std::optional<int> latest;
  for (const std::string& name : base::SystemRoot().List(run_directory)) {
    if (!name.starts_with(kAttempt)) continue;
    const auto number = base::ParseInteger<int>(std::string_view(name).substr(sizeof kAttempt - 1));
    if (number && *number >= 0 && (!latest || *number > *latest)) latest = number;
  }
  return latest;
}

base::Result<std::vector<std::string>> LogFiles(const RunLogs& logs, const LogChoice& choice) {
  if (!choice.rank) return std::vector<std::string>{logs.directory + kMergedLog};
  int local = *choice.rank;
  std::optional<int> attempt = LatestAttempt(logs.directory);
  if (logs.entry) {
    const RunRecord& record = logs.entry->record;
    const int here = static_cast<int>(std::max(record.cards.size(), record.ranks.size()));
    local -= record.first_rank;
    if (!attempt) attempt = record.attempt;
    if (here > 0 && (local < 0 || local >= here)) {
      return base::Error{fmt::format("rank {} of run {} is not on this host: ranks {} to {} are", *choice.rank,
                                     logs.name, record.first_rank, record.first_rank + here - 1)};
    }
  }
  const std::string attempt_folder = fmt::format("{}/{}{}", logs.directory, kAttempt, attempt.value_or(0));
  const std::string folder = fmt::format("{}/{}", attempt_folder, local);
  const bool may_come = logs.entry && logs.entry->alive;
  if (local < 0 || (!may_come && !IsFolder(folder))) {
    return base::Error{fmt::format("rank {} has no logs in {}; {}", *choice.rank, base::Printable(attempt_folder),
                                   RanksThere(attempt_folder))};
  }
  std::vector<std::string> files;
  if (choice.standard_output) files.push_back(folder + "/stdout.log");
  if (choice.standard_error) files.push_back(folder + "/stderr.log");
  return files;
}

std::vector<std::string> LogFolders(const RunLogs& logs, const std::vector<std::string>& files) {
  std::vector<std::string> folders{logs.directory};
  for (const std::string& file : files) {
    // Each folder on the path between run directory and file.
    for (std::size_t slash = file.find('/', logs.directory.size() + 1); slash != std::string::npos;
         slash = file.find('/', slash + 1)) {
      const std::string folder = file.substr(0, slash);
      if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
    }
  }
  return folders;
}

}  // namespace fulldeck::job
