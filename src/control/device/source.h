// A source is something outside this process that can tell about cards: a vendor's library, read in a helper process,
// or a vendor's tool, whose text is parsed. SourceRunner asks several at once and never waits longer than the deadline.
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
  // … or a tool: the program by path, its arguments, and what understands its text.
  std::vector<std::string> command;
  TextParser parser = nullptr;
};

struct Answer {
  std::string title;
  base::Result<SourceReading> reading;
};

// Keeps a library's helper process from one reading to the next, so that a watcher does not load it again and again.
// Not thread safe.
class SourceRunner {
 public:
  // `helper_program` answers `vendor-helper KIND CANDIDATE…` (vendor_helper.h): normally /proc/self/exe.
  explicit SourceRunner(std::string helper_program = "/proc/self/exe");
  ~SourceRunner();

  // One answer a source, in the same order, all asked at the same time. What has not answered by the deadline is killed
  // with its whole process group, and its answer says so.
  std::vector<Answer> Query(const std::vector<Source>& sources, base::Duration deadline);

 private:
  class Helper;
  class ToolRun;
  std::string helper_program_;
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace fulldeck::device
