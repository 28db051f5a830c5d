#include "cli/train_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/files/whole_file.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/read.h"

namespace fulldeck::cli {
namespace {

namespace fs = std::filesystem;
using base::Error;
using config::JobFolder;

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

base::Result<base::UniqueFd> TakeLock(const JobFolder& folder) {
  base::UniqueFd lock(open(folder.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock.valid()) return base::ErrnoError("cannot write " + base::Printable(folder.lock()));
  // On a file system without locks, continue without one.
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Error{fmt::format(
        "another fulldeck train is running in {}; watch it with fulldeck logs -f, stop it with fulldeck stop, or give "
        "this one another name: --set name=OTHER",
        base::Printable(folder.path))};
  }
  return lock;
}

// demo becomes demo.old-1, or the next number that is free.
base::Result<std::string> SetAside(const JobFolder& folder) {
  constexpr int kMost = 10'000;
  for (int number = 1; number < kMost; ++number) {
    const std::string aside = fmt::format("{}.old-{}", folder.path, number);
    if (IsThere(aside)) continue;
    if (rename(folder.path.c_str(), aside.c_str()) != 0) {
      return base::ErrnoError(
          fmt::format("cannot rename {} to {}", base::Printable(folder.path), base::Printable(aside)));
    }
    return aside;
  }
  return Error{fmt::format("there are {} folders {}.old-N; remove some", kMost, base::Printable(folder.path))};
}

// Whether the settings match those with which the checkpoints were written.
base::Result<void> CheckSettings(const config::Config& config, const JobFolder& folder,
                                 std::vector<std::string>* notes) {
  const auto text = base::ReadWholeFile(folder.resolved(), config::kMaxConfigBytes);
  if (!text) {
    return Error{
        fmt::format("{}: it says with which settings the checkpoints of {} were made, so they cannot be resumed "
                    "without it; start anew with --fresh, which sets the folder aside",
                    text.error().message, base::Printable(folder.path))};
  }
  const auto before = config::FromOlderResolvedText(*text, folder.resolved());
  if (!before) return before.error();
  std::vector<std::string> hard, soft;
  for (const config::Change& change : config::ChangesBetween(*before, config)) {
    (change.fixed ? hard : soft)
        .push_back(base::Printable(fmt::format("{} was {} and is now {}", change.key, change.before, change.after)));
  }
  if (!hard.empty()) {
    return Error{
        fmt::format("the checkpoints in {} do not fit this recipe: {}. Set it back to resume them, or train under "
                    "another name: --set name=OTHER",
                    base::Printable(folder.path), base::Join(hard, "; "))};
  }
  for (const std::string& change : soft) notes->push_back("resumed with another setting: " + change);
  return {};
}

}  // namespace

base::Result<void> CheckFolder(const config::Config& config, Earlier earlier, std::vector<std::string>* notes) {
  const JobFolder folder(config);
  const std::vector<std::string> checkpoints = folder.Checkpoints();
  switch (earlier) {
    case Earlier::kRefuse:
      if (checkpoints.empty()) return {};
      return Error{
          fmt::format("{} has checkpoints of an earlier run (the newest is {}): go on from there with --resume, start "
                      "anew with --fresh "
                      "(which renames the folder), or give this run another name: --set name=OTHER",
                      base::Printable(folder.path), base::Printable(checkpoints.back()))};
    case Earlier::kSetAside:
      return {};
    case Earlier::kResume:
      break;
  }
  if (!IsThere(folder.path)) {
    return Error{fmt::format("there is nothing to resume: there is no folder {}; leave --resume away to start",
                             base::Printable(folder.path))};
  }
  if (checkpoints.empty()) {
    notes->push_back(
        fmt::format("{} has no checkpoint yet: the training starts at the beginning", base::Printable(folder.path)));
    return {};
  }
  notes->push_back(fmt::format("resumes from {}", base::Printable(folder.checkpoints() + "/" + checkpoints.back())));
  return CheckSettings(config, folder, notes);
}

base::Result<base::UniqueFd> PrepareFolder(const config::Config& config, const std::string& config_text,
                                           Earlier earlier, const std::string& run_id,
                                           std::vector<std::string>* notes) {
  const JobFolder folder(config);
  if (earlier == Earlier::kSetAside && IsThere(folder.path)) {
    // A run that is using the folder must not have it renamed.
    const auto lock = TakeLock(folder);
    if (!lock) return lock.error();
    const auto aside = SetAside(folder);
    if (!aside) return aside.error();
    notes->push_back(fmt::format("the earlier {} is now {}", base::Printable(folder.path), base::Printable(*aside)));
  }
  std::error_code error;
  fs::create_directories(folder.logs(), error);
  if (error) return Error{fmt::format("cannot make {}: {}", base::Printable(folder.logs()), error.message())};
  auto lock = TakeLock(folder);
  if (!lock) return lock.error();
  // Before the lock was taken, another start may have changed the folder: check again.
  std::vector<std::string> reported_before;
  const auto still = CheckFolder(config, earlier == Earlier::kSetAside ? Earlier::kRefuse : earlier, &reported_before);
  if (!still) return still.error();
  const auto written = base::ReplaceFile(folder.config(), config_text);
  if (!written) return written.error();
  const auto resolved = base::ReplaceFile(folder.resolved(), config::ToResolvedText(config));
  if (!resolved) return resolved.error();
  const std::string unfinished = folder.merged_log() + ".new";
  fs::remove(unfinished, error);
  fs::create_symlink(run_id + "/logs/train.log", unfinished, error);
  if (!error) fs::rename(unfinished, folder.merged_log(), error);
  if (error) {
    notes->push_back(fmt::format("{} cannot be made ({}): the log is {}/{}/logs/train.log",
                                 base::Printable(folder.merged_log()), error.message(), base::Printable(folder.logs()),
                                 run_id));
  }
  return std::move(*lock);
}

}  // namespace fulldeck::cli
