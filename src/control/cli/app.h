// The command line: finds the command, explains mistakes, turns results into exit codes. What a command does stands in
// its own file.
#pragma once

namespace fulldeck::cli {

// All of main(). Returns the exit code.
int Run(int argc, char** argv);

// Before main returns: the exit code, or 1 with a message when something that went to standard output did not get there
// (a full disk). `code` stays where it names a failure already.
int CheckOutput(int code);

}  // namespace fulldeck::cli
