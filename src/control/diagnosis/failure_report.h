// The report of a failed run: the root cause, how that rank ended, the end of its output, its stacks, the matching
// catalogue entries, and which files to read. Lines have no "fulldeck:" prefix; the caller adds it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/error_file.h"

namespace fulldeck::diagnosis {

struct FailureFacts {
  std::string what;   // "rank 3 (host a, gcu 3, pid 4711) killed by SIGKILL", with any further details
  std::string after;  // "after 12.3 s"
  int stopped_others = 0;
  std::string stderr_path, stdout_path, crash_path, error_path;
  // If another rank's failure revealed this one: its name, its stderr, and the error that it reported.
  std::string noticed_by, noticed_path, noticed_error;
  std::string python;  // the interpreter of the ranks; empty: not Python
};

struct FailureLines {
  std::vector<std::string> lines;
  std::vector<std::string> known;  // catalogue ids, most likely first
};

// The key parts of a Python traceback: its last line, and the frames of the user's own code (outside the interpreter's
// library and installed packages), innermost last: "train.py:12 in main: open(path)".
struct TracebackSummary {
  std::string error;
  std::vector<std::string> user_frames;
};
// Of the last traceback in a text; nullopt if there is none.
std::optional<TracebackSummary> SummarizeTraceback(std::string_view text);

// The last `lines` lines of a text. If a Python traceback begins in the last 200 lines, starts at the last one.
std::vector<std::string> Tail(std::string_view text, std::size_t lines);

// The end of a file, at most `limit` bytes; empty if it cannot be read.
std::string ReadTail(const std::string& path, std::size_t limit);

// Reads the files that `facts` names.
FailureLines FailureReport(const FailureFacts& facts);

}  // namespace fulldeck::diagnosis
