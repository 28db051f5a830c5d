// Log lines for the user on stderr. Each line starts with "fulldeck:", so that it can be distinguished from the output
// of a rank, and is written with one write, so that lines of several processes do not mix. Not for output that a
// program reads. A line that stderr does not accept within one second (a pipe that is not read) is dropped: the caller
// may be the process that has to stop the others.
#pragma once

#include <string_view>

namespace fulldeck::base {

enum class Severity { kInfo, kWarning, kError };

// "fulldeck: warning: …". Thread safe.
void Log(Severity severity, std::string_view message);

}  // namespace fulldeck::base
