// A stack of our own for the time of a report. The one that a handler gets may have 8 KiB left (Python's faulthandler
// makes such ones), and reading a broken stack can need as much again for each fault on the way.
// For one thread at a time (crash_report.h has the lock).
#pragma once

namespace fulldeck::agent {

// Makes it; before the first use, outside a handler. Without memory, work runs on the stack where it is.
void MakeReportStack();

// Runs `work` on it, in a signal handler or outside one. Signals that come meanwhile are handled on it too.
void RunOnReportStack(void (*work)(void*), void* argument);

}  // namespace fulldeck::agent
