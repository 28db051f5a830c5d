// One report at a time: crash reports and stacks on request share the stack (report_stack.h), the guard (fault_guard.h)
// and the tables of names. For signal handlers.
#pragma once

namespace fulldeck::agent {

// Whether it is now this thread's turn (`thread`: its tid); waits for another's end for at most so long. False at once
// when it is this thread's turn already.
bool AcquireReportLock(long thread, int milliseconds);

// By any thread: one may end the turn of another that could not wait for it.
void ReleaseReportLock();

// In the child of a fork: whoever had the turn is not in this process.
void ResetReportLock();

}  // namespace fulldeck::agent
