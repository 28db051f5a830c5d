// The signal on which the rank writes the stacks of its threads (stack_report.h): installed at the start if the program
// has no action for it, given up when the program installs its own, and taken back when the program resets it. The
// program sees the default action while the signal is ours. The rank board records the current state.
//
// Threads: any; the functions may be called in a signal handler, like sigaction.
#pragma once

#include <signal.h>

#include "fulldeck/rank_board.h"

namespace fulldeck::agent {

// High in the range of real-time signals, which few programs use, and not one that the C library or the launcher uses.
int StackSignal();

// Installs the handler and records it on the board (kept open from now on; nullptr: none). Call after StartChain,
// before the program has threads. Does nothing if the signal already has an action.
void StartStackSignal(const char* path, fulldeck_board* board);

// In the child of a fork: it does not act for the rank, and has the default action that the program expects.
void LeaveStackSignal();

// Whether sigaction for this signal is handled here: it is the stack signal, in the rank itself (not in a child of
// vfork).
bool IsStackSignal(int signal_number);

// sigaction as called by the program for that signal. Also the path of Python's handler: faulthandler.register, called
// by our hook while the variable kPythonStacksVariable is set, registers it here and not in the kernel. It then writes
// Python's stacks before ours, to the descriptor given in the variable.
int StackSigaction(const struct sigaction* wanted, struct sigaction* previous);

inline constexpr char kPythonStacksVariable[] = "FULLDECK_PYTHON_STACKS";

}  // namespace fulldeck::agent
