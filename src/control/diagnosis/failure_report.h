// The report of a failed run: who began, how, the end of what it wrote, its stacks, what the catalogue knows about it,
// and where to read on. Lines without "fulldeck:"; the caller puts that before each.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/error_file.h"

namespace fulldeck::diagnosis {

struct FailureFacts {
  std::string what;   // "rank 3 (host a, gcu 3, pid 4711) killed by SIGKILL", with what is known beyond it
  std::string after;  // "after 12.3 s"
  int stopped_others = 0;
  std::string stderr_path, stdout_path, crash_path, error_path;
  // The rank whose failure showed it, where it is another one: its name, its stderr, and the error that it reported.
  std::string noticed_by, noticed_path, noticed_error;
  std::string python;  // the interpreter of the ranks; empty: none
};

struct FailureLines {
  std::vector<std::string> lines;
  std::vector<std::string> known;  // ids of the catalogue, the likeliest first
};

// What a person looks for first in a Python traceback: its last line, and the frames that are the user's own (outside
// of the interpreter's library and of installed packages), innermost last: "train.py:12 in main: open(path)".
struct TracebackSummary {
  std::string error;
  std::vector<std::string> user_frames;
};
// Of the last traceback in a text; empty if there is none.
std::optional<TracebackSummary> SummarizeTraceback(std::string_view text);

// The last `lines` lines of a text; from the last Python traceback on when one begins in the last 200 lines.
std::vector<std::string> Tail(std::string_view text, std::size_t lines);

// The end of a file, at most `limit` bytes; empty when it cannot be read.
std::string ReadTail(const std::string& path, std::size_t limit);

// Reads the files that the facts name.
FailureLines FailureReport(const FailureFacts& facts);

}  // namespace fulldeck::diagnosis
