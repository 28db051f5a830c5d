// events.jsonl: the events of a run, one JSON object per line, appended as they happen.
//
//   {"version":1,"time":1763323200.125,"monotonic_ns":81235,"id":"card-idle","severity":"warning","card":"gcu:3",
//    "rank":3,"message":"gcu:3 is idle: …"}
//
// `time` is seconds since 1970; order events by monotonic_ns, which clock adjustments do not affect. A log that
// cannot be written does not affect the run: the first failure is returned once, and later events are dropped.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "events/event.h"

namespace fulldeck::events {

// One line without its newline. `wall_seconds` is the time since 1970.
std::string ToJsonLine(const Event& event, double wall_seconds, base::TimePoint at);

// One thread.
class EventLog {
 public:
  // A run's log never grows beyond this; its last line then has the id "events-truncated".
  static constexpr std::size_t kMaxBytes = 16 << 20;

  // Appends to `path`, which is created with mode 0600 and must not be a symbolic link. May be called for several
  // files; all of them get the same lines.
  base::Result<void> Open(const std::string& path);

  // The error of the first file that failed since the last call, if any; that file gets no further events.
  std::optional<base::Error> Append(const Event& event, base::TimePoint at);

 private:
  struct File {
    std::string path;
    base::UniqueFd fd;
    std::size_t written = 0;
  };
  std::vector<File> files_;
};

}  // namespace fulldeck::events
