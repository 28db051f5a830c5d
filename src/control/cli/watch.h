// Shows something again and again, in place on a terminal.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "wire/exit_codes.h"

namespace fulldeck::cli {

base::Duration Seconds(double seconds);

// Calls `show` now and then every `interval`, until Ctrl-C, SIGTERM, or until it returns kFailed, kUsage or
// kBadEnvironment, or calls `end` that it is given. Returns the last code.
wire::ExitCode Watch(base::Duration interval,
                     const std::function<wire::ExitCode(const std::function<void()>& end)>& show);

// To stdout, at once. kFailed when nobody reads it any more.
wire::ExitCode Print(const std::string& text);
// The same; on a terminal the text takes the place of the one before, in a file they follow each other.
wire::ExitCode PrintFrame(const std::string& text);

}  // namespace fulldeck::cli
