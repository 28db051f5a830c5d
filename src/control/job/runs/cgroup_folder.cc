#include "job/runs/cgroup_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/files/system_root.h"
#include "base/files/unique_fd.h"
#include "base/text.h"
#include "job/runs/process_signal.h"

namespace fulldeck::job {
namespace {

constexpr long kCgroup1Magic = 0x27e0eb;
constexpr long kCgroup2Magic = 0x63677270;
constexpr int kDeepest = 16;
constexpr std::size_t kMaxFolders = 4096;

// Adds the folder and those below it, the deepest last.
void AddTree(const std::string& folder, int depth, std::vector<std::string>& folders) {
  if (depth > kDeepest || folders.size() >= kMaxFolders) return;
  folders.push_back(folder);
  for (const std::string& name : base::SystemRoot().List(folder)) {
    struct stat status {};
    const std::string path = folder + "/" + name;
    if (lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) AddTree(path, depth + 1, folders);
  }
}

// Whether killing everything in it would kill the caller.
bool HoldsTheCaller(const std::vector<std::string>& folders) {
  const auto processes = ProcessesIn(folders);
  return std::any_of(processes.begin(), processes.end(),
                     [](const wire::ProcessIdentity& process) { return IsThisProcessOrAncestor(process.pid); });
}

bool WriteTo(const std::string& path, std::string_view text) {
  const base::UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.valid() && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

bool IsCgroup(const std::string& folder) {
  struct stat status {};
  struct statfs system {};
  if (folder.empty() || folder.front() != '/' || folder.find("/../") != std::string::npos) return false;
  if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || statfs(folder.c_str(), &system) != 0)
    return false;
  return static_cast<long>(system.f_type) == kCgroup1Magic || static_cast<long>(system.f_type) == kCgroup2Magic;
}

std::vector<std::string> CgroupTree(const std::string& cgroup) {
  std::vector<std::string> folders;
  AddTree(cgroup, 0, folders);
  return folders;
}

std::vector<wire::ProcessIdentity> ProcessesIn(const std::vector<std::string>& folders) {
  std::vector<wire::ProcessIdentity> processes;
  for (const std::string& folder : folders) {
    const auto text = base::SystemRoot().ReadFile(folder + "/cgroup.procs");
    if (!text) continue;
    for (const std::string_view line : base::Split(*text, '\n')) {
      const auto pid = base::ParseInteger<int>(line);
      if (!pid || *pid <= 0) continue;
      const auto identity = wire::IdentityOf(*pid);
      if (identity && wire::IsAlive(*identity)) processes.push_back(*identity);
    }
  }
  return processes;
}

void KillCgroup(const std::string& cgroup) {
  const std::vector<std::string> folders = CgroupTree(cgroup);
  if (HoldsTheCaller(folders)) return;
  if (WriteTo(cgroup + "/cgroup.kill", "1")) return;
  for (const wire::ProcessIdentity& process : ProcessesIn(folders)) SendSignal(process, SIGKILL);
  // A process that v1 has frozen does not even die.
  for (const std::string& folder : folders) WriteTo(folder + "/freezer.state", "THAWED");
}

bool RemoveCgroup(const std::string& cgroup) {
  std::vector<std::string> folders = CgroupTree(cgroup);
  std::reverse(folders.begin(), folders.end());
  for (const std::string& folder : folders) rmdir(folder.c_str());
  return access(cgroup.c_str(), F_OK) != 0;
}

}  // namespace fulldeck::job
