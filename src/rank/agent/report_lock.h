// One report at a time: crash reports and requested stacks share the stack (report_stack.h), the guard (fault_guard.h)
// and the tables of names. For signal handlers.
#pragma once

namespace fulldeck::agent {

// Acquires the lock for this thread (`thread`: its tid), waiting for another thread for at most `milliseconds`. Returns
// false immediately if this thread already holds it.
bool AcquireReportLock(long thread, int milliseconds);

// May be called by any thread: a thread that the lock's holder could not wait for may release it instead.
void ReleaseReportLock();

// In the child of a fork: the holder does not exist in this process.
void ResetReportLock();

}  // namespace fulldeck::agent
