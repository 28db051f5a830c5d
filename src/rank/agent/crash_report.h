// The crash report: what a rank leaves when a signal ends it. Text, appended to the file that the launcher named, one
// report after another (docs/rank-agent.md shows one). Written inside the signal handler, so nothing here allocates,
// locks for long or needs a healthy program.
//
// Threads: any may report; one report at a time, a second one waits for it for at most two seconds. At most
// kMaxReports a process, so that a program which lives on its faults does not fill a disk.
#pragma once

#include <signal.h>

namespace fulldeck::agent {

inline constexpr int kMaxReports = 8;

// Before the first report: where reports go (the text is copied) and which process is the rank. False: the path is
// empty or too long, and there will be no reports.
bool PrepareReports(const char* path, int rank_pid);

// In the child of a fork: its reports are its own.
void ForgetReports();

enum class Report {
  kWritten,
  kDuplicate,  // the very same fault was reported last: its handler returned to the instruction that faults
  kNone,       // no file, or too many
};

// `context`: the handler's third argument.
Report WriteReport(int signal_number, const siginfo_t& info, void* context);

// Adds a line behind the report, such as what the program did about it.
void AddToReport(const char* line);
void AddSignalToReport(const char* before, int signal_number, const char* behind);

}  // namespace fulldeck::agent
