// Shows output repeatedly, in place on a terminal.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "wire/exit_codes.h"

namespace fulldeck::cli {

base::Duration Seconds(double seconds);

// Calls `show` now and then every `interval`, until Ctrl-C or SIGTERM, or until it returns kFailed, kUsage or
// kBadEnvironment, or calls the `end` that it receives. Returns the last code.
wire::ExitCode Watch(base::Duration interval,
                     const std::function<wire::ExitCode(const std::function<void()>& end)>& show);

// Prints to stdout immediately. Returns kFailed if stdout has no reader any more.
wire::ExitCode Print(const std::string& text);
// The same; on a terminal the text replaces the previous one, in a file the texts follow each other.
wire::ExitCode PrintFrame(const std::string& text);

}  // namespace fulldeck::cli
