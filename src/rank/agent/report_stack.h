// A separate stack for writing a report. The signal stack of a handler may have 8 KiB left (Python's faulthandler
// allocates such ones), and reading a corrupt stack can need as much again for each fault on the way. One thread at a
// time (protected by report_lock.h).
#pragma once

namespace fulldeck::agent {

// Allocates it; call before the first use, outside a handler. Without memory, work runs on the current stack.
void MakeReportStack();

// Runs `work` on it, inside a signal handler or outside one. Signals that arrive meanwhile are handled on it too.
void RunOnReportStack(void (*work)(void*), void* argument);

}  // namespace fulldeck::agent
