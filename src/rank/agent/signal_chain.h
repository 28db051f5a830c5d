// Keeps our handler in front of the program's own ones, for the crash signals (crash_signals.h) alone. The program sees
// nothing of it: what it installs is remembered and called after our report with what the kernel gave us, and what it
// asks for is what it installed. Mask, SA_NODEFER, SA_RESTART and SA_RESETHAND hold for its handler as without us; a
// default action ends the process with the same signal, at the same place, so exit status and core file are the same; a
// signal that it ignores is ignored.
//
// One difference: the handler runs on the alternate stack of its thread, if there is one, also where the program did
// not ask for it (the main thread has one of 128 KiB; a program may set its own).
//
// Threads: any. These functions may be called in a signal handler, as sigaction may.
#pragma once

#include <signal.h>

namespace fulldeck::agent {

// Puts our handler in front of what is installed now, and gives the calling thread an alternate stack if it has none.
// Call once, before the program has threads.
void StartChain();

// The next definition of sigaction behind ours: the C library's, or another preloaded library's.
int NextSigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous);

// sigaction as the program calls it, for any signal, whether the chain was started or not.
int ChainedSigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous);

// Whether the chain stands between this process and that signal. Not in a child of vfork, which shares our memory but
// not our handlers.
bool IsChained(int signal_number);

// Whether our handlers of SIGSEGV and SIGBUS are those that the kernel would call now, so that fault_guard.h works: a
// program that ignores these signals, or installs handlers by system call, has taken them out.
bool FaultsAreGuarded();

}  // namespace fulldeck::agent
