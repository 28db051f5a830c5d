#include "job/runs/run_registry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/files/system_root.h"
#include "base/files/unique_fd.h"
#include "base/host_name.h"
#include "base/text.h"
#include "wire/private_folder.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

constexpr std::size_t kLargestEntry = std::size_t{1} << 20;
constexpr std::size_t kLongestName = 100;
constexpr char kSubfolder[] = "/runs";

std::string FileName(const RunRecord& record) {
  std::string name = record.run_id.substr(0, kLongestName);
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  std::replace_if(
      name.begin(), name.end(), [&](char c) { return !plain(c); }, '_');
  return fmt::format("{}.{}.json", name, record.front.pid > 0 ? record.front.pid : record.supervisor.pid);
}

base::Result<std::string> ReadCapped(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return base::ErrnoError("cannot read " + path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return base::ErrnoError(path);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
    return base::Error{path + " is not a file of yours, so no run of yours wrote it"};
  }
  std::string text;
  std::array<char, 16384> chunk;
  for (;;) {
    const ssize_t got = read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError("cannot read " + path);
    if (got == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.size() > kLargestEntry) return base::Error{path + " is larger than 1 MiB, so it is no entry of a run"};
  }
}

base::Result<RunRegistry::Entry> ReadEntry(const std::string& path) {
  const auto text = ReadCapped(path);
  if (!text) return text.error();
  auto record = ParseRunRecord(*text);
  if (!record) {
    return base::Error{fmt::format("{} cannot be understood: {}", base::Printable(path), record.error().message)};
  }
  RunRegistry::Entry entry{std::move(*record), path, false};
  entry.alive = entry.record.pid_space == ThisPidSpace() && entry.record.supervisor.pid > 0 &&
                wire::IsAlive(entry.record.supervisor);
  return entry;
}

std::string_view BootOf(std::string_view pid_space) {
  return pid_space.substr(0, pid_space.find('/'));
}

enum class Reach { kHere, kContainer, kElsewhere };

// For a run from before a reboot the pids are meaningless, but this machine may still remove the entry.
Reach ReachOf(const RunRecord& record) {
  const std::string here = ThisPidSpace();
  if (record.pid_space == here) return Reach::kHere;
  if (BootOf(record.pid_space) == BootOf(here)) return Reach::kContainer;
  return record.host == base::HostName() ? Reach::kHere : Reach::kElsewhere;
}

bool WriteWhole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string ListOf(const std::vector<RunRegistry::Entry>& entries) {
  if (entries.empty()) return "There is no run of yours on this machine.";
  std::string text = "Runs of yours:";
  for (const RunRegistry::Entry& entry : entries) {
    text += fmt::format(" {}{}{}", entry.record.run_id, entry.alive ? "" : " (left behind)",
                        &entry == &entries.back() ? "." : ",");
  }
  return text;
}

bool IsSameFolder(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return !one.empty() && !other.empty() && std::filesystem::equivalent(one, other, ignored);
}

}  // namespace

std::string ThisPidSpace() {
  const base::SystemRoot root;
  return root.ReadLine("/proc/sys/kernel/random/boot_id").value_or("unknown") + "/" +
         root.ReadLink("/proc/self/ns/pid").value_or("unknown");
}

RunRegistry::RunRegistry(const base::Environment& environment) {
  if (const auto named = environment.Get(wire::kRuntimeDirVariable); named && !named->empty()) {
    folders_.push_back(*named);
    return;
  }
  // A session started by su, cron or a scheduler has no XDG_RUNTIME_DIR, although another session of the user may
  // have one.
  const std::string uid = std::to_string(geteuid());
  for (const std::string& folder : {wire::RuntimeFolder(environment), "/run/user/" + uid + "/fulldeck",
                                    wire::OwnedFolder("/tmp/fulldeck-" + uid)}) {
    if (std::find(folders_.begin(), folders_.end(), folder) == folders_.end()) folders_.push_back(folder);
  }
}

base::Result<std::string> RunRegistry::Write(const RunRecord& record) const {
  const std::string& folder = folders_.front();
  for (const std::string& each : {folder, folder + kSubfolder}) {
    const auto made = wire::MakePrivateFolder(each, wire::kRuntimeDirVariable);
    if (!made) return made.error();
  }
  const std::string name = FileName(record);
  const std::string path = folder + kSubfolder + "/" + name;
  const std::string draft = folder + kSubfolder + "/." + name + "." + std::to_string(getpid());
  RunRecord whole = record;
  if (whole.pid_space.empty()) whole.pid_space = ThisPidSpace();
  unlink(draft.c_str());  // of a process with the same pid that died halfway
  base::UniqueFd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written =
      file.valid() && WriteWhole(file.get(), FormatRunRecord(whole)) && rename(draft.c_str(), path.c_str()) == 0;
  if (!written) {
    const int error = errno;
    unlink(draft.c_str());
    return base::ErrnoError("cannot write the entry of the run, " + path, error);
  }
  return path;
}

void RunRegistry::Remove(const RunRecord& record) const {
  unlink((folders_.front() + kSubfolder + "/" + FileName(record)).c_str());
}

void RunRegistry::Remove(const Entry& entry) const {
  unlink(entry.path.c_str());
}

std::vector<RunRegistry::Entry> RunRegistry::List(std::vector<std::string>* warnings) const {
  const auto warn = [&](const std::string& sentence) {
    if (warnings != nullptr) warnings->push_back(sentence);
  };
  std::vector<Entry> entries;
  for (const std::string& base_folder : folders_) {
    const std::string folder = base_folder + kSubfolder;
    auto fit = wire::CheckPrivateFolder(base_folder, wire::kRuntimeDirVariable);
    if (fit) fit = wire::CheckPrivateFolder(folder, wire::kRuntimeDirVariable);
    if (!fit) {
      const int error = fit.error().system_error;
      if (error != ENOENT && error != EACCES && error != ENOTDIR) warn(fit.error().message);
      continue;
    }
    for (const std::string& name : base::SystemRoot().List(folder)) {
      if (name.starts_with(".") || !name.ends_with(".json")) continue;
      auto entry = ReadEntry(folder + "/" + name);
      // A run that has just ended removed its entry.
      if (!entry && entry.error().system_error == ENOENT) continue;
      if (!entry) {
        warn(entry.error().message);
        continue;
      }
      const Reach reach = ReachOf(entry->record);
      if (reach == Reach::kHere) entries.push_back(std::move(*entry));
      if (reach == Reach::kContainer) {
        warn(
            fmt::format("run {} was started in another container of this machine; only there it can be seen and "
                        "stopped",
                        entry->record.run_id));
      }
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& one, const Entry& other) {
    return one.record.started_unix_seconds < other.record.started_unix_seconds;
  });
  return entries;
}

base::Result<RunRegistry::Entry> RunRegistry::ReadAgain(const Entry& entry) const {
  return ReadEntry(entry.path);
}

base::Result<std::vector<RunRegistry::Entry>> RunRegistry::FindAll(std::string_view which) const {
  const std::vector<Entry> entries = List();
  const auto matching = [&](const auto& matches) {
    std::vector<Entry> found;
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(found), matches);
    return found;
  };
  std::vector<Entry> found;
  if (which.empty()) {
    found = matching([](const Entry& entry) { return entry.alive; });
    if (found.empty()) return base::Error{"no run is running. " + ListOf(entries)};
  } else {
    found = matching([&](const Entry& entry) { return entry.record.run_id == which; });
    if (found.empty()) found = matching([&](const Entry& entry) { return entry.record.run_id.starts_with(which); });
    if (found.empty()) {
      found = matching([&](const Entry& entry) { return IsSameFolder(std::string(which), entry.record.directory); });
    }
    if (found.empty()) {
      return base::Error{fmt::format("there is no run '{}'. {}", base::Printable(which), ListOf(entries))};
    }
  }
  for (const Entry& entry : found) {
    if (entry.record.run_id == found.front().record.run_id) continue;
    return base::Error{which.empty() ? "several runs are running; name one. " + ListOf(found)
                                     : fmt::format("'{}' is not the beginning of one run alone. {}",
                                                   base::Printable(which), ListOf(found))};
  }
  return found;
}

base::Result<RunRegistry::Entry> RunRegistry::Find(std::string_view which) const {
  auto found = FindAll(which);
  if (!found) return found.error();
  return *std::min_element(found->begin(), found->end(), [](const Entry& one, const Entry& other) {
    return std::pair(!one.alive, one.record.group_rank) < std::pair(!other.alive, other.record.group_rank);
  });
}

}  // namespace fulldeck::job
