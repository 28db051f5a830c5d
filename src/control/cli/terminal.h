// What the terminal can show.
#pragma once

namespace fulldeck::cli {

// Whether stdout is a terminal with colors: a real terminal, NO_COLOR not set, TERM not dumb.
bool StdoutWantsColor();

}  // namespace fulldeck::cli
