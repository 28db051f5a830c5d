// What a program says on its standard output, with an end in time and in size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fulldeck::cli {

struct ChildOutput {
  std::string text;    // at most `most` bytes; what comes behind is dropped
  std::string errors;  // standard error, at most 4 KiB
  bool timed_out = false;
  int exit_code = 0;  // 128 + signal for one that a signal ended; -1 when it was killed for its time
};

// Blocks until the program and whatever it started has ended, or `timeout` is over: then all of it is killed. An error
// when it cannot be started. `arguments[0]` is a path. `environment`: "NAME=value"; nothing: that of this process.
base::Result<ChildOutput> RunForOutput(const std::vector<std::string>& arguments, base::Duration timeout,
                                       std::size_t most,
                                       std::optional<std::vector<std::string>> environment = std::nullopt);

}  // namespace fulldeck::cli
