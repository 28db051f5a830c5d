#include "launcher/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <map>
#include <set>

#include "base/files/system_root.h"
#include "base/text.h"
#include "wire/process_identity.h"

namespace fulldeck::launcher {
namespace {

std::optional<TreeProcess> ReadProcess(const base::SystemRoot& root, const std::string& name) {
  const auto pid = base::ParseInteger<int>(name);
  const auto stat = pid ? wire::ReadProcessStat(*pid, root) : std::nullopt;
  if (!stat) return std::nullopt;
  return TreeProcess{*pid, stat->parent, stat->state,
                     base::Printable(root.ReadLine("/proc/" + name + "/comm").value_or(""))};
}

void Collect(const std::multimap<pid_t, TreeProcess>& children, pid_t parent, const std::vector<pid_t>& spared,
             std::vector<TreeProcess>& found) {
  const auto [begin, end] = children.equal_range(parent);
  for (auto child = begin; child != end; ++child) {
    if (std::find(spared.begin(), spared.end(), child->second.pid) != spared.end()) continue;
    if (child->second.state != 'Z' && child->second.state != 'X') found.push_back(child->second);
    Collect(children, child->second.pid, spared, found);
  }
}

std::vector<TreeProcess> DescendantsExcept(pid_t ancestor, const std::vector<pid_t>& spared) {
  const base::SystemRoot root;
  std::multimap<pid_t, TreeProcess> children;
  for (const std::string& name : root.List("/proc")) {
    if (name.empty() || name[0] < '1' || name[0] > '9') continue;
    auto process = ReadProcess(root, name);
    if (process) children.emplace(process->parent, std::move(*process));
  }
  std::vector<TreeProcess> found;
  Collect(children, ancestor, spared, found);
  return found;
}

}  // namespace

base::Result<void> BecomeSubreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return base::ErrnoError("cannot become a subreaper");
  return {};
}

std::vector<TreeProcess> Descendants(pid_t ancestor) {
  return DescendantsExcept(ancestor, {});
}

bool HasChildren() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

int SignalDescendants(pid_t ancestor, int signal_number, const std::vector<pid_t>& spared) {
  std::set<pid_t> reached;
  constexpr int kWalks = 50;  // bound for a fork bomb; the caller tries again later
  for (int walk = 0; walk < kWalks; ++walk) {
    bool found_new = false;
    for (const TreeProcess& process : DescendantsExcept(ancestor, spared)) {
      if (!reached.insert(process.pid).second) continue;
      found_new = kill(process.pid, signal_number) == 0 || found_new;
    }
    if (!found_new) break;
  }
  return static_cast<int>(reached.size());
}

bool CatchesSignal(pid_t pid, int signal_number) {
  const auto status = base::SystemRoot().ReadFile("/proc/" + std::to_string(pid) + "/status", 16384);
  if (!status) return false;
  for (const std::string_view line : base::Split(*status, '\n')) {
    constexpr std::string_view kTitle = "SigCgt:";
    if (!line.starts_with(kTitle)) continue;
    const auto mask = base::ParseInteger<std::uint64_t>(base::Trim(line.substr(kTitle.size())), 16);
    return mask && ((*mask >> (signal_number - 1)) & 1) != 0;
  }
  return false;
}

}  // namespace fulldeck::launcher
