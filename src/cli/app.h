// The command line: finds the command, explains mistakes, turns results into exit codes. What a command does stands in
// its own file.
#pragma once

namespace fulldeck::cli {

// All of main(). Returns the exit code.
int Run(int argc, char** argv);

}  // namespace fulldeck::cli
