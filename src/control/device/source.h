// A source is something outside this process that reports about cards: a vendor's library, read in a helper process,
// or a vendor's tool, whose text is parsed. SourceRunner queries several at the same time and never waits longer than
// the deadline.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/card_reading.h"

namespace fulldeck::device {

enum class LibraryKind { kNvml, kEfml, kDcmi, kIxml };
const char* LibraryKindName(LibraryKind kind);  // "nvml"
std::optional<LibraryKind> ParseLibraryKind(std::string_view name);

using TextParser = SourceReading (*)(std::string_view text);

struct Source {
  std::string title;  // for messages: "NVML", "efsmi"
  // Either a library …
  std::optional<LibraryKind> library;
  std::vector<std::string> candidates;  // paths or bare names, tried in this order
  // … or a tool: the program by path, its arguments, and the parser of its output.
  std::vector<std::string> command;
  TextParser parser = nullptr;
};

struct Answer {
  std::string title;
  base::Result<SourceReading> reading;
};

// Keeps the helper process of a library from one reading to the next, so that a repeated reader does not load it each
// time. Not thread-safe.
class SourceRunner {
 public:
  // `helper_program` must implement `vendor-helper KIND CANDIDATE…` (vendor_helper.h): normally /proc/self/exe.
  explicit SourceRunner(std::string helper_program = "/proc/self/exe");
  ~SourceRunner();

  // One answer per source, in the same order; all are queried at the same time. A source that has not answered by the
  // deadline is killed with its whole process group, and its answer is an error.
  std::vector<Answer> Query(const std::vector<Source>& sources, base::Duration deadline);

 private:
  class Helper;
  class ToolRun;
  std::string helper_program_;
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace fulldeck::device
