#include "diagnosis/hangs/process_facts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "base/text.h"
#include "diagnosis/hangs/stack_dump.h"
#include "wire/process_identity.h"

namespace fulldeck::diagnosis {
namespace {

constexpr std::size_t kMaxThreads = 1024;
constexpr std::size_t kMaxChildren = 64;
constexpr std::size_t kMaxCommand = 200;
constexpr std::size_t kMaxKernelFrames = 32;

// The value after "KEY:\t" in a status file; empty if there is no such line.
std::string_view StatusField(std::string_view status, std::string_view key) {
  for (const std::string_view line : base::Split(status, '\n')) {
    if (line.starts_with(key) && line.substr(key.size()).starts_with(":")) {
      return base::Trim(line.substr(key.size() + 1));
    }
  }
  return {};
}

bool HasSignal(std::string_view mask, int signal_number) {
  const auto bits = base::ParseInteger<std::uint64_t>(mask, 16);
  return bits && (*bits >> (signal_number - 1) & 1) != 0;
}

// "202 0x7f… …", "running", "-1 0x… 0x…".
std::string DescribeCall(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of(" \n"));
  if (word == "running") return "running";
  const auto number = base::ParseInteger<long>(word);
  return number && *number >= 0 ? SystemCallName(*number) : "";
}

std::vector<std::string> ThreadNames(const std::string& folder, const base::SystemRoot& root) {
  std::vector<std::string> names = root.List(folder);
  std::erase_if(names, [](const std::string& name) { return !base::ParseInteger<int>(name); });
  // Numerical order puts the main thread first.
  std::sort(names.begin(), names.end(), [](const std::string& one, const std::string& other) {
    return std::pair(one.size(), one) < std::pair(other.size(), other);
  });
  if (names.size() > kMaxThreads) names.resize(kMaxThreads);
  return names;
}

std::string CommandOf(const std::string& folder, const base::SystemRoot& root) {
  std::string command = root.ReadFile(folder + "/cmdline", 4096).ok() ? *root.ReadFile(folder + "/cmdline", 4096) : "";
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::replace(command.begin(), command.end(), '\0', ' ');
  if (command.empty()) command = root.ReadLine(folder + "/comm").value_or("?");
  if (command.size() > kMaxCommand) command = command.substr(0, kMaxCommand) + "…";
  return base::Printable(command);
}

}  // namespace

std::string DescribeState(char state) {
  const char* text = "in an unknown state";
  switch (state) {
    case 'R':
      text = "running";
      break;
    case 'S':
      text = "sleeping";
      break;
    case 'D':
      text = "held by the kernel, not to be interrupted";
      break;
    case 'T':
      text = "stopped";
      break;
    case 't':
      text = "stopped by a debugger";
      break;
    case 'Z':
    case 'X':
      text = "ended";
      break;
    default:
      break;
  }
  return std::string(text) + " (state " + base::Printable(std::string_view(&state, 1)) + ")";
}

std::string ThreadFacts::ToString() const {
  std::string text = "thread " + std::to_string(thread) + " " + name + ": " + DescribeState(state);
  if (!system_call.empty() && system_call != "running") text += ", in " + system_call;
  if (!wait_channel.empty()) text += ", at " + wait_channel;
  return text;
}

std::vector<ThreadFacts> ReadThreads(int pid, const base::SystemRoot& root) {
  std::vector<ThreadFacts> threads;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const std::string& name : ThreadNames(tasks, root)) {
    const std::string folder = tasks + "/" + name;
    const auto status = root.ReadFile(folder + "/status", 8192);
    if (!status) continue;
    ThreadFacts facts;
    facts.thread = base::ParseInteger<int>(name).value_or(0);
    facts.name = base::Printable(StatusField(*status, "Name"));
    const std::string_view state = StatusField(*status, "State");
    if (!state.empty()) facts.state = state.front();
    const std::string channel = root.ReadLine(folder + "/wchan").value_or("");
    if (channel != "0") facts.wait_channel = base::Printable(channel);
    facts.system_call = DescribeCall(root.ReadLine(folder + "/syscall").value_or(""));
    if (facts.state == 'D') {
      if (const auto stack = root.ReadFile(folder + "/stack", 16384); stack.ok()) {
        for (const std::string_view line : base::Split(*stack, '\n')) {
          if (!line.empty() && facts.kernel_stack.size() < kMaxKernelFrames) {
            facts.kernel_stack.push_back(base::Printable(base::Trim(line)));
          }
        }
      }
    }
    threads.push_back(std::move(facts));
  }
  return threads;
}

std::vector<std::vector<ChildFacts>> ReadChildren(const std::vector<int>& pids, const base::SystemRoot& root) {
  std::multimap<int, ChildFacts> by_parent;
  for (const std::string& name : root.List("/proc")) {
    const auto pid = base::ParseInteger<int>(name);
    if (!pid) continue;
    const auto stat = wire::ReadProcessStat(*pid, root);
    if (stat) by_parent.emplace(stat->parent, ChildFacts{*pid, stat->parent, stat->state, ""});
  }
  std::vector<std::vector<ChildFacts>> all;
  for (const int pid : pids) {
    std::vector<ChildFacts> found;
    const auto add = [&](int parent) {
      const auto [first, last] = by_parent.equal_range(parent);
      for (auto child = first; child != last && found.size() < kMaxChildren; ++child) {
        const bool known = std::any_of(found.begin(), found.end(),
                                       [&](const ChildFacts& one) { return one.pid == child->second.pid; });
        if (!known && child->second.pid != pid) found.push_back(child->second);
      }
    };
    add(pid);
    for (std::size_t i = 0; i < found.size(); ++i) add(found[i].pid);
    for (ChildFacts& child : found) child.command = CommandOf("/proc/" + std::to_string(child.pid), root);
    all.push_back(std::move(found));
  }
  return all;
}

SignalFacts ReadSignalFacts(int pid, int signal_number, const base::SystemRoot& root) {
  SignalFacts facts;
  const std::string folder = "/proc/" + std::to_string(pid);
  const auto status = root.ReadFile(folder + "/status", 8192);
  if (!status) return facts;
  facts.caught = HasSignal(StatusField(*status, "SigCgt"), signal_number);
  facts.tracer = base::ParseInteger<int>(StatusField(*status, "TracerPid")).value_or(0);
  for (const std::string& name : ThreadNames(folder + "/task", root)) {
    const auto thread = root.ReadFile(folder + "/task/" + name + "/status", 8192);
    if (!thread || HasSignal(StatusField(*thread, "SigBlk"), signal_number)) continue;
    facts.takeable = true;
    break;
  }
  return facts;
}

}  // namespace fulldeck::diagnosis
