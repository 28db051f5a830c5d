#include "diagnosis/hangs/stack_collection.h"

#include "base/check.h"
#include "fuzz_target.h"

// No terminal control characters pass through, no name is longer than its line, and a truncated line is a prefix of the
// whole one.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::diagnosis;
  const std::string_view text = fulldeck::fuzz::AsText(data, size);
  const std::vector<StackDump> dumps = ParseStackDumps(text);
  FULLDECK_CHECK(dumps.size() <= 64);
  for (const StackDump& dump : dumps) {
    RankStacks rank;
    rank.process.pid = dump.process;
    rank.dump = dump;
    for (const auto& lines : {rank.Lines(), rank.AllLines()}) {
      for (const std::string& line : lines) {
        FULLDECK_CHECK(line.find('\x1b') == std::string::npos && line.find('\n') == std::string::npos);
      }
    }
    FULLDECK_CHECK(rank.Key().empty() == !rank.complete() || dump.threads.empty());
  }
  const auto line_end = text.rfind('\n', text.size() / 2);
  const std::vector<StackDump> begun = ParseStackDumps(text.substr(0, line_end == text.npos ? 0 : line_end + 1));
  FULLDECK_CHECK(begun.size() <= dumps.size() || dumps.size() == 64);
  return 0;
}
