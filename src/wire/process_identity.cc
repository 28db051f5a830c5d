#include "wire/process_identity.h"

#include <unistd.h>

#include <string>

#include "base/text.h"

namespace fulldeck::wire {
namespace {

struct StatFields {
  char state;
  std::uint64_t start_ticks;
};

std::optional<StatFields> ReadStat(int pid, const base::SystemRoot& root) {
  const auto text = root.ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return std::nullopt;
  // The command name stands in brackets and may hold spaces and brackets itself: count from the last one.
  const auto after_name = text->rfind(')');
  if (after_name == std::string::npos || after_name + 2 >= text->size()) return std::nullopt;
  const auto fields = base::Split(std::string_view(*text).substr(after_name + 2), ' ');
  constexpr std::size_t kStartTime = 22 - 3;  // the first of `fields` is field 3
  if (fields.size() <= kStartTime || fields[0].empty()) return std::nullopt;
  const auto start = base::ParseInteger<std::uint64_t>(fields[kStartTime]);
  if (!start) return std::nullopt;
  return StatFields{fields[0].front(), *start};
}

}  // namespace

ProcessIdentity ThisProcess() {
  return IdentityOf(getpid()).value_or(ProcessIdentity{getpid(), 0});
}

std::optional<ProcessIdentity> IdentityOf(int pid, const base::SystemRoot& root) {
  const auto stat = ReadStat(pid, root);
  if (!stat) return std::nullopt;
  return ProcessIdentity{pid, stat->start_ticks};
}

bool IsAlive(const ProcessIdentity& identity) {
  const auto stat = ReadStat(identity.pid, base::SystemRoot());
  if (!stat || stat->state == 'Z' || stat->state == 'X') return false;
  return identity.start_ticks == 0 || identity.start_ticks == stat->start_ticks;
}

}  // namespace fulldeck::wire
