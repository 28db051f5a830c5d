// The stacks of all threads of the rank, written on request: text, appended to the file that the launcher named
// (docs/rank-agent.md shows one). Written inside a signal handler of a healthy program that will continue: nothing here
// allocates, waits without a limit, or changes state of the program.
//
// The thread that receives the request writes. It sends the same signal to every other thread, each of which reads its
// own stack, and waits for all of them together. A thread that does not respond in time is listed with its state. If
// Python is loaded, the other threads pause until the Python stacks, which come first, are written.
#pragma once

#include <cstdint>

namespace fulldeck::agent {

// Time limit for the responses of all threads together, and additional time for a response that has begun.
inline constexpr int kAnswerMilliseconds = 700;
inline constexpr int kGraceMilliseconds = 300;
// Longest pause of a thread that has responded, while Python reads the frames of all threads.
inline constexpr int kPauseMilliseconds = 1500;
// A file that has grown beyond this size is truncated first.
inline constexpr long kMaxStackFile = 4 << 20;

// Call before the first request. Sets the file for stacks (the path is copied), and the signal that is sent to the
// threads. False: the path is empty or too long. Requires PrepareReports (crash_report.h).
bool PrepareStacks(const char* path, int signal_number);

// How Python writes its stacks. `handler`: that of faulthandler, which writes to `descriptor`, open only while it is
// called. `dump`: the function that it calls, (descriptor, interpreter, thread), if this Python exports it: preferred,
// because a fault in it leaves no lasting state. nullptr: none.
using PythonDump = const char* (*)(int, void*, void*);
void SetPythonStacks(void (*handler)(int), int descriptor, PythonDump dump);

// Called in the signal handler, for a request from outside. `request`: its number, which the dump repeats. A request
// that arrives while stacks are being written is served with the next ones.
void WriteStacks(std::uint32_t request, void* context);

// Called in the handler of a thread that the writing thread has signaled. Does nothing without a request.
void AnswerWithStack(void* context);

}  // namespace fulldeck::agent
