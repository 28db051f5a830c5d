#include "wire/process_identity.h"

#include <unistd.h>

#include <string>

#include "base/text.h"

namespace fulldeck::wire {

std::optional<ProcessStat> ReadProcessStat(int pid, const base::SystemRoot& root) {
  const auto text = root.ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return std::nullopt;
  // The command name is in parentheses and may contain spaces and parentheses itself: parse from the last one.
  const auto after_name = text->rfind(')');
  if (after_name == std::string::npos || after_name + 2 >= text->size()) return std::nullopt;
  const auto fields = base::Split(std::string_view(*text).substr(after_name + 2), ' ');
  if (fields[0].empty()) return std::nullopt;
  // Numbered as in proc(5), where the state is field 3.
  const auto number = [&](std::size_t field) -> std::optional<std::uint64_t> {
    if (fields.size() <= field - 3) return std::nullopt;
    return base::ParseInteger<std::uint64_t>(fields[field - 3]);
  };
  const auto start = number(22);
  if (!start) return std::nullopt;
  ProcessStat stat;
  stat.state = fields[0].front();
  stat.parent = static_cast<int>(number(4).value_or(0));
  stat.cpu_ticks = number(14).value_or(0) + number(15).value_or(0);
  stat.start_ticks = *start;
  stat.resident_pages = number(24).value_or(0);
  return stat;
}

ProcessIdentity ThisProcess() {
  return IdentityOf(getpid()).value_or(ProcessIdentity{getpid(), 0});
}

std::optional<ProcessIdentity> IdentityOf(int pid, const base::SystemRoot& root) {
  const auto stat = ReadProcessStat(pid, root);
  if (!stat) return std::nullopt;
  return ProcessIdentity{pid, stat->start_ticks};
}

bool IsAlive(const ProcessIdentity& identity) {
  const auto stat = ReadProcessStat(identity.pid);
  if (!stat || stat->state == 'Z' || stat->state == 'X') return false;
  return identity.start_ticks == 0 || identity.start_ticks == stat->start_ticks;
}

}  // namespace fulldeck::wire
