#include "collectives/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace fulldeck::collectives {
namespace {

const char* NameOf(TraceEvent::Kind kind) {
  switch (kind) {
    case TraceEvent::Kind::kIn:
      return "in";
    case TraceEvent::Kind::kReduce:
      return "reduce";
    case TraceEvent::Kind::kOut:
      return "out";
    case TraceEvent::Kind::kWait:
      return "wait";
  }
  return "other";
}

// Makes a file name from a group's name, which may contain any characters.
std::string FileName(const std::string& group, int rank) {
  std::string name;
  for (const char c : group.substr(0, 64)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += plain ? c : '_';
  }
  return name + "." + std::to_string(rank) + "." + std::to_string(getpid()) + ".jsonl";
}

}  // namespace

base::Result<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& folder, const std::string& group,
                                                           int rank) {
  const std::string path = folder + "/" + FileName(group, rank);
  // The name is easy to guess, and the folder may be /tmp: never write to a symbolic link, a pipe or another user's
  // file.
  base::UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644));
  if (!file.valid()) return base::ErrnoError(path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return base::ErrnoError(path);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_nlink != 1) {
    return base::Error{path + " is there, and no file of yours alone"};
  }
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(file)));
}

void TraceFile::Write(std::uint64_t sequence, const Call& call, std::uint64_t begin_ns, std::uint64_t end_ns,
                      std::span<const TraceEvent> events) {
  std::string line = "{\"call\": " + std::to_string(sequence) + ", \"what\": \"" + collectives::Describe(call) +
                     "\", \"begin_ns\": " + std::to_string(begin_ns) + ", \"end_ns\": " + std::to_string(end_ns) +
                     ", \"events\": [";
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& event = events[i];
    line += std::string(i == 0 ? "[\"" : ", [\"") + NameOf(event.kind) + "\", " + std::to_string(event.chunk) + ", " +
            std::to_string(event.begin_ns) + ", " + std::to_string(event.end_ns) + "]";
  }
  line += "]}\n";
  (void)!write(file_.get(), line.data(), line.size());
}

}  // namespace fulldeck::collectives
