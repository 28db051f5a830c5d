#include "device/holders.h"

#include <algorithm>

#include "base/text.h"

namespace fulldeck::device {
namespace {

constexpr std::size_t kLongestCommand = 200;

// Reads account names directly from the file: a lookup through the name service can hang on a network.
std::map<std::string, std::string> ReadAccounts(const base::SystemRoot& root) {
  std::map<std::string, std::string> names;
  const auto text = root.ReadFile("/etc/passwd");
  if (!text) return names;
  for (const std::string_view line : base::Split(*text, '\n')) {
    const auto fields = base::Split(line, ':');
    if (fields.size() > 2) names.emplace(fields[2], base::Printable(fields[0]));
  }
  return names;
}

std::optional<std::string> ReadUser(const base::SystemRoot& root, int pid,
                                    const std::map<std::string, std::string>& accounts) {
  const auto status = root.ReadFile("/proc/" + std::to_string(pid) + "/status");
  if (!status) return std::nullopt;
  for (const std::string_view line : base::Split(*status, '\n')) {
    if (!line.starts_with("Uid:")) continue;
    const std::string uid(base::Split(base::Trim(line.substr(4)), '\t').front());
    const auto name = accounts.find(uid);
    return name != accounts.end() ? name->second : "uid " + base::Printable(uid);
  }
  return std::nullopt;
}

std::optional<std::string> ReadCommand(const base::SystemRoot& root, int pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  auto arguments = root.ReadFile(folder + "/cmdline", kLongestCommand);
  if (arguments && !arguments->empty()) {
    const auto separates = [](char letter) { return letter == '\0' || letter == '\n' || letter == '\t'; };
    std::replace_if(arguments->begin(), arguments->end(), separates, ' ');
    return base::Printable(base::Trim(*arguments));
  }
  const auto name = root.ReadLine(folder + "/comm");
  if (!name) return std::nullopt;
  return base::Printable(*name);
}

struct OpenNodes {
  std::map<std::string, std::vector<int>> pids;  // by path of the device node
  bool complete = true;
};

OpenNodes WalkDescriptors(const base::SystemRoot& root) {
  OpenNodes open;
  for (const std::string& name : root.List("/proc")) {
    const auto pid = base::ParseInteger<int>(name);
    if (!pid) continue;
    const std::string folder = "/proc/" + name + "/fd";
    const std::vector<std::string> descriptors = root.List(folder);
    // Kernel threads have no descriptors either; only an inaccessible folder hides something.
    if (descriptors.empty() && !root.Exists(folder + "/.")) open.complete = false;
    for (const std::string& descriptor : descriptors) {
      const auto target = root.ReadLink(folder + "/" + descriptor);
      if (!target || !target->starts_with("/dev/")) continue;
      std::vector<int>& pids = open.pids[*target];
      if (pids.empty() || pids.back() != *pid) pids.push_back(*pid);
    }
  }
  return open;
}

}  // namespace

void FillHolders(const base::SystemRoot& root, std::vector<Card*> cards) {
  const auto unknown = [](const Card* card) { return !card->telemetry.holders && !card->nodes.empty(); };
  if (std::any_of(cards.begin(), cards.end(), unknown)) {
    const OpenNodes open = WalkDescriptors(root);
    for (Card* card : cards) {
      if (!unknown(card)) continue;
      std::vector<Holder> holders;
      for (const std::string& node : card->nodes) {
        const auto pids = open.pids.find(node);
        if (pids == open.pids.end()) continue;
        for (const int pid : pids->second) holders.push_back({pid, std::nullopt, std::nullopt, std::nullopt});
      }
      if (open.complete || !holders.empty()) card->telemetry.holders = std::move(holders);
    }
  }
  const auto used = [](const Card* card) { return card->telemetry.holders && !card->telemetry.holders->empty(); };
  if (std::none_of(cards.begin(), cards.end(), used)) return;
  const auto accounts = ReadAccounts(root);
  for (Card* card : cards) {
    if (!used(card)) continue;
    for (Holder& holder : *card->telemetry.holders) {
      holder.user = ReadUser(root, holder.pid, accounts);
      holder.command = ReadCommand(root, holder.pid);
    }
  }
}

}  // namespace fulldeck::device
