// The standard output of a program, with limits on time and size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fulldeck::cli {

struct ChildOutput {
  std::string text;    // at most `most` bytes; the rest is dropped
  std::string errors;  // standard error, at most 4 KiB
  bool timed_out = false;
  int exit_code = 0;  // 128 + signal if a signal ended it; -1 if it was killed at the timeout
};

// Blocks until the program and everything that it started has ended, or `timeout` has passed: then all of it is
// killed. Fails if the program cannot be started. `arguments[0]` is a path. `environment`: "NAME=value"; nullopt:
// that of this process.
base::Result<ChildOutput> RunForOutput(const std::vector<std::string>& arguments, base::Duration timeout,
                                       std::size_t most,
                                       std::optional<std::vector<std::string>> environment = std::nullopt);

}  // namespace fulldeck::cli
