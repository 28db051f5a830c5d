// Records on the rank board which process is the rank.
#pragma once

#include "fulldeck/rank_board.h"

namespace fulldeck::agent {

// `program`: its name, for display. `last`: this process is the user's program, so the board's descriptor becomes
// close-on-exec and its children do not get it; otherwise it stays open for the program that this one execs.
// An unusable board is reported in one line on stderr; no board at all is fine. A board of another version ends the
// process (ExitCode::kOtherVersion): its launcher and this agent do not match.
// Returns the board, to be kept for the life of the process; nullptr if there is none to write to, or `last` is false.
fulldeck_board* WriteIdentity(const char* program, bool last);

}  // namespace fulldeck::agent
