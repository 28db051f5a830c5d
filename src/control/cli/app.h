// The command line: finds the command, explains errors, turns results into exit codes. Each command is implemented in
// its own file.
#pragma once

namespace fulldeck::cli {

// All of main(). Returns the exit code.
int Run(int argc, char** argv);

// Call before main returns: returns the exit code, or 1 with a message if some standard output could not be written
// (a full disk). `code` is kept if it already reports a failure.
int CheckOutput(int code);

}  // namespace fulldeck::cli
