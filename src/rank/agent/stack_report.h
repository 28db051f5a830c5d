// The stacks of all threads of the rank, written when somebody asks for them: text, appended to the file that the
// launcher named (docs/rank-agent.md shows one). Written inside a signal handler of a program that is well and wants to
// go on: nothing here allocates, waits without an end, or changes anything of the program's.
//
// The thread that takes the request writes. It asks every other thread with the same signal, each of which reads its
// own stack, and waits for all of them together. A thread that does not answer in time is named with what it does.
// Where there is Python, the others stand still until its stacks are written, which come first.
#pragma once

#include <cstdint>

namespace fulldeck::agent {

// How long all threads together have for their answers, and how much longer one that has begun.
inline constexpr int kAnswerMilliseconds = 700;
inline constexpr int kGraceMilliseconds = 300;
// How long a thread that has answered stands still at most, while Python reads the frames of all.
inline constexpr int kPauseMilliseconds = 1500;
// A file that has grown beyond this begins anew.
inline constexpr long kMaxStackFile = 4 << 20;

// Before the first request: where stacks go (the text is copied), and the signal with which threads are asked. False:
// the path is empty or too long. Needs what PrepareReports (crash_report.h) prepares.
bool PrepareStacks(const char* path, int signal_number);

// How Python writes its stacks. `handler`: faulthandler's, which writes to `descriptor`, open only while it is called.
// `dump`: the function behind it, (descriptor, interpreter, thread), where this Python shows it: better, since a fault
// in it leaves no trace. nullptr: none.
using PythonDump = const char* (*)(int, void*, void*);
void SetPythonStacks(void (*handler)(int), int descriptor, PythonDump dump);

// In the signal's handler, for a request from outside. `request`: its number, which the dump repeats. One that comes
// while stacks are written is answered with the next ones.
void WriteStacks(std::uint32_t request, void* context);

// In the handler, for a thread that is asked by the one that writes. Nothing happens where nobody asked.
void AnswerWithStack(void* context);

}  // namespace fulldeck::agent
