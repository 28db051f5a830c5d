// The report of a failed run: who began, how, the end of what it said, its stacks, what the catalogue knows about it,
// and where to read on. Lines without "fulldeck:"; the caller puts that before each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/error_file.h"

namespace fulldeck::launcher {

struct FailureFacts {
  std::string who;    // "rank 3 (host a, gcu 3, pid 4711)"
  std::string how;    // "killed by SIGKILL", with what is known beyond it
  std::string after;  // "after 12.3 s"
  int stopped_others = 0;
  std::string stderr_path, stdout_path, crash_path, error_path;
};

// The last `lines` lines of a text; from the last Python traceback on when one begins in the last 200 lines.
std::vector<std::string> Tail(std::string_view text, std::size_t lines);

// The end of a file, at most `limit` bytes; empty when it cannot be read.
std::string ReadTail(const std::string& path, std::size_t limit);

// Reads the files that the facts name.
std::vector<std::string> FailureReport(const FailureFacts& facts);

}  // namespace fulldeck::launcher
