// The crash report: what a rank writes when a signal kills it. Text, appended to the file that the launcher named
// (docs/rank-agent.md shows one). Written inside the signal handler, so nothing here allocates, holds a lock for long
// or depends on intact program state.
//
// Threads: any may report; one report at a time, a second one waits for it for at most two seconds. At most kMaxReports
// per process, so that a program which handles its own faults does not fill a disk.
#pragma once

#include <signal.h>

namespace fulldeck::agent {

inline constexpr int kMaxReports = 8;

// Call before the first report. Sets the file for reports (the path is copied) and which process is the rank. Returns
// false if the path is empty or too long; there are no reports then.
bool PrepareReports(const char* path, int rank_pid);

// In the child of a fork: it has not written any report yet.
void ForgetReports();

enum class Report {
  kWritten,
  kDuplicate,  // the same fault was reported last: its handler returned to the faulting instruction
  kNone,       // no file, or kMaxReports reached
};

// `context`: the third argument of the signal handler.
Report WriteReport(int signal_number, const siginfo_t& info, void* context);

// Appends a line to the report, such as what the program did about the signal.
void AddToReport(const char* line);
void AddSignalToReport(const char* before, int signal_number, const char* behind);

}  // namespace fulldeck::agent
