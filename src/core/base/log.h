// Lines of ours to a person on stderr. Each starts with "fulldeck:", so that it can be told from the output of a rank,
// and goes out in one write, so that lines of several processes do not mix. Not a place for output that a program
// reads. A line for which stderr has no room (a pipe that nobody reads) within a second is dropped: whoever logs may be
// the one who has to end processes.
#pragma once

#include <string_view>

namespace fulldeck::base {

enum class Severity { kInfo, kWarning, kError };

// "fulldeck: warning: …". Any thread may call it.
void Log(Severity severity, std::string_view message);

}  // namespace fulldeck::base
