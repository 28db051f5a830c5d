// Lines of ours to a person on stderr. Each starts with "fulldeck:", so that it can be told from the output of a rank,
// and goes out in one write, so that lines of several processes do not mix. Not a place for output that a program
// reads.
#pragma once

#include <string_view>

namespace fulldeck::base {

enum class Severity { kInfo, kWarning, kError };

// "fulldeck: warning: …". Any thread may call it.
void Log(Severity severity, std::string_view message);

}  // namespace fulldeck::base
