// Reads memory that may be broken: runs a function and comes back also when it faults. For reading the stack and the
// modules of a program that has just crashed, where a smashed stack leads anywhere.
// Needs a handler of SIGSEGV and SIGBUS that calls LeaveFault first. One thread at a time (crash_report.h has the
// lock).
#pragma once

namespace fulldeck::agent {

// Whether `work` returned; false: it faulted and was left where it stood. It must own nothing that needs giving back.
bool RunGuarded(void (*work)(void*), void* argument);

// In the handler: returns when this thread is not inside RunGuarded, and does not return when it is.
void LeaveFault();

}  // namespace fulldeck::agent
