// Reads memory that may be corrupt: runs a function and returns even if it faults. For reading the stack and the
// modules of a program that has just crashed, where a smashed stack may point anywhere.
// Needs a handler of SIGSEGV and SIGBUS that calls LeaveFault first. One thread at a time (protected by report_lock.h).
#pragma once

namespace fulldeck::agent {

// Whether `work` returned; false: it faulted and was abandoned. It must own nothing that needs to be released.
bool RunGuarded(void (*work)(void*), void* argument);

// Called by the handler: returns if this thread is not inside RunGuarded; otherwise jumps back to RunGuarded.
void LeaveFault();

}  // namespace fulldeck::agent
