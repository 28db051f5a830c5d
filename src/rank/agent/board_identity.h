// Writes on the rank board which process the rank is.
#pragma once

#include "fulldeck/rank_board.h"

namespace fulldeck::agent {

// `program`: its name, for people. `last`: this process is the one that the user means, so the board's descriptor ends
// with it and its children do not get it; else it stays open for the program that this one becomes.
// A board that cannot be used is told on stderr in one line; no board at all is fine. A board of another version ends
// the process (ExitCode::kOtherVersion): its launcher and this agent do not belong together.
// Returns the board, to be kept as long as the process; nullptr: there is none to write on, or `last` is false.
fulldeck_board* WriteIdentity(const char* program, bool last);

}  // namespace fulldeck::agent
