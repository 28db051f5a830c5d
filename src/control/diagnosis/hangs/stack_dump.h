// Reads the stacks that a rank wrote of itself on request (docs/rank-agent.md shows the text). The text comes from a
// program that may be broken: anything may be missing, cut or strange. What is kept is capped and fit to be shown.
// Pure: reads no file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::diagnosis {

struct NativeFrame {
  std::uint64_t address = 0;
  std::string file;          // "libtorch_cpu.so"; empty: in no file
  std::uint64_t offset = 0;  // in the file, as addr2line takes it
  std::string function;      // demangled; empty: the file does not export it

  // "c10d::Store::wait (libtorch_cpu.so)", "libc.so.6+0x1234", "0x7f12".
  std::string Short() const;
};

struct PythonFrame {
  std::string file;
  int line = 0;
  std::string function;

  // "workdir/train.py:9 in backward": the file with the folder that it lies in.
  std::string Short() const;
};

struct ThreadStack {
  int thread = 0;  // tid; 0: a thread that Python knows and the native part does not
  std::string name;
  bool answered = false;    // else the thread did not tell its stack, and `unanswered` says why and what it does
  std::string unanswered;   // "it blocks the signal; state S, in system call 202"
  std::string native_note;  // "and more frames", "the stack is broken here"; empty: it is whole
  std::vector<NativeFrame> native;  // innermost first
  std::vector<PythonFrame> python;  // innermost first; empty: no Python in it
  bool is_current = false;          // Python calls it the current thread: the one that took the signal

  // Where the thread stands, for comparing two dumps of one process: two equal keys are the same place. The calls, with
  // Python's line numbers, and not the instruction that is being run, which moves while a thread waits in a loop.
  std::string Key() const;
  // The same by functions alone: equal also while a loop goes round in one function.
  std::string FunctionKey() const;
};

struct StackDump {
  std::vector<std::uint32_t> requests;  // the numbers that it answers
  int process = 0;
  double unix_seconds = 0;
  bool whole = false;       // ends with its last line
  std::string note;         // why there are no stacks at all, or not of all threads; mostly empty
  std::string python_note;  // why there are no Python stacks, where the program has Python; empty: they are there
  std::vector<ThreadStack> threads;  // the one that took the signal first, mostly the main thread
  std::vector<std::string> files;    // full paths of what the frames lie in

  bool Answers(std::uint32_t request) const;
};

// All dumps of a file, oldest first; at most the last 64. The last may be cut short.
std::vector<StackDump> ParseStackDumps(std::string_view text);

// Of this machine's kernel: "futex"; "system call 999" for one that is not known by name.
std::string SystemCallName(long number);

// "_ZN4c10d5Store4waitEv" as people write it, without template arguments and parameters where `shortly`; other names
// as they are.
std::string Demangled(const std::string& name, bool shortly);

}  // namespace fulldeck::diagnosis
