#include "events/event_log.h"

#include <fcntl.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/files/whole_file.h"

namespace fulldeck::events {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

// Bytes that are not UTF-8 (for example in a rank's own text) become U+FFFD; without this, dump() throws.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string ToJsonLine(const Event& event, double wall_seconds, base::TimePoint at) {
  Json line;
  line["version"] = kVersion;
  line["time"] = wall_seconds;
  line["monotonic_ns"] = std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
  line["id"] = event.id;
  line["severity"] = NameOf(event.severity);
  for (const auto& [name, value] : event.fields.values()) {
    std::visit([&, &field = name](const auto& typed) { line[field] = typed; }, value);
  }
  line["message"] = event.message;
  return Dump(line);
}

base::Result<void> EventLog::Open(const std::string& path) {
  base::UniqueFd fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd.valid()) return base::ErrnoError("cannot write the events of the run to " + path);
  files_.push_back({path, std::move(fd), 0});
  return {};
}

std::optional<base::Error> EventLog::Append(const Event& event, base::TimePoint at) {
  const double wall = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string line = ToJsonLine(event, wall, at) + "\n";
  std::optional<base::Error> first;
  for (File& file : files_) {
    if (!file.fd.valid()) continue;
    const bool full = file.written + line.size() > kMaxBytes;
    const Event last{"events-truncated", Severity::kWarning, {}, "events.jsonl is full; later events are not in it"};
    const std::string& bytes = full ? ToJsonLine(last, wall, at) + "\n" : line;
    const auto written = base::WriteAllTo(file.fd.get(), bytes, file.path);
    file.written += bytes.size();
    if (!written && !first) first = written.error();
    if (!written || full) file.fd.Reset();
  }
  return first;
}

}  // namespace fulldeck::events
