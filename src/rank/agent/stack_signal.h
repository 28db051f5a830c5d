// The signal on which the rank writes the stacks of its threads (stack_report.h): installed at the start where the
// program has nothing on it, given up when the program wants the signal for itself, taken back when it gives it up.
// The program sees the default action while it is ours. The rank board says which of it holds.
//
// Threads: any; the functions may be called in a signal handler, as sigaction may.
#pragma once

#include <signal.h>

#include "fulldeck/rank_board.h"

namespace fulldeck::agent {

// High among the real-time signals, where few programs look for one, and none of those that the C library and the
// launcher use.
int StackSignal();

// Installs the handler, and says so on the board (kept open from now on; nullptr: none). After StartChain, before the
// program has threads. Does nothing when something is on the signal already.
void StartStackSignal(const char* path, fulldeck_board* board);

// In the child of a fork: it does not answer for the rank, and has the default action that the program expects.
void LeaveStackSignal();

// Whether sigaction for this signal is ours to answer: it is the stack signal, of the rank itself (not of a child of
// vfork).
bool IsStackSignal(int signal_number);

// sigaction as the program calls it for that signal. Also how Python's handler gets here: faulthandler.register, called
// by our hook while the variable kPythonStacksVariable is set, gives it to us and not to the kernel. It then writes
// Python's stacks before ours, to the descriptor that the variable names.
int StackSigaction(const struct sigaction* wanted, struct sigaction* previous);

inline constexpr char kPythonStacksVariable[] = "FULLDECK_PYTHON_STACKS";

}  // namespace fulldeck::agent
