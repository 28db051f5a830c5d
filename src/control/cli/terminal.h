// What the terminal can show.
#pragma once

namespace fulldeck::cli {

// Whether stdout is a terminal that wants color: a real one, NO_COLOR not set, TERM not dumb.
bool StdoutWantsColor();

}  // namespace fulldeck::cli
