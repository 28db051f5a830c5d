// Keeps our handler in front of the program's own handlers, only for the crash signals (crash_signals.h). The program
// does not notice: the action it installs is recorded and called after our report with the original arguments, and
// sigaction returns the recorded action. Mask, SA_NODEFER, SA_RESTART and SA_RESETHAND apply to its handler as usual; a
// default action ends the process with the same signal at the same instruction, so exit status and core file are the
// same; a signal that the program ignores is ignored.
//
// One difference: the handler runs on the alternate stack of its thread, if there is one, even if the program did not
// request it (the main thread has one of 128 KiB; a program may set its own).
//
// Threads: any. These functions may be called in a signal handler, like sigaction.
#pragma once

#include <signal.h>

namespace fulldeck::agent {

// Puts our handler in front of the installed actions, and gives the calling thread an alternate stack if it has none.
// Call once, before the program has threads.
void StartChain();

// The next definition of sigaction after ours: that of the C library, or of another preloaded library.
int NextSigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous);

// sigaction as called by the program, for any signal, whether or not the chain was started.
int ChainedSigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous);

// Whether the chain is in front of that signal in this process. Not in a child of vfork, which shares our memory but
// not our handlers.
bool IsChained(int signal_number);

// Whether the kernel would currently call our handlers for SIGSEGV and SIGBUS, so that fault_guard.h works. A program
// that ignores these signals, or installs handlers by system call, has removed them.
bool FaultsAreGuarded();

}  // namespace fulldeck::agent
