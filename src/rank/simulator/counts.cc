#include "simulator/counts.h"

#include <deque>
#include <map>
#include <mutex>

namespace fulldeck::simulator {
namespace {

// Never destroyed: kernels may still run while the process exits.
struct Counters {
  std::mutex mutex;
  std::deque<OperatorCount> all;
  std::map<std::string, OperatorCount*, std::less<>> by_name;
};

Counters& TheCounters() {
  static auto& counters = *new Counters;
  return counters;
}

}  // namespace

OperatorCount& CountOf(std::string_view name, bool native) {
  Counters& counters = TheCounters();
  const std::lock_guard lock(counters.mutex);
  const auto found = counters.by_name.find(name);
  if (found != counters.by_name.end()) return *found->second;
  OperatorCount& made = counters.all.emplace_back();
  made.name = name;
  made.native = native;
  counters.by_name.emplace(made.name, &made);
  return made;
}

std::string CountsText() {
  Counters& counters = TheCounters();
  const std::lock_guard lock(counters.mutex);
  std::string text;
  for (const auto& [name, counter] : counters.by_name) {
    const std::uint64_t calls = counter->calls.load(std::memory_order_relaxed);
    if (calls == 0) continue;
    text += std::to_string(calls) + (counter->native ? " native " : " fallback ") + name + "\n";
  }
  return text;
}

void ResetCounts() {
  Counters& counters = TheCounters();
  const std::lock_guard lock(counters.mutex);
  for (OperatorCount& counter : counters.all) counter.calls.store(0, std::memory_order_relaxed);
}

}  // namespace fulldeck::simulator
