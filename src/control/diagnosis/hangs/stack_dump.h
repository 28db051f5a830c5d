// Parses the stacks that a rank wrote on request (format: docs/rank-agent.md). The text comes from a possibly broken
// program: anything may be missing, truncated or garbled. Stored text is capped and printable. Pure: reads no file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::diagnosis {

struct NativeFrame {
  std::uint64_t address = 0;
  std::string file;          // "libtorch_cpu.so"; empty: not in a file
  std::uint64_t offset = 0;  // in the file, as addr2line takes it
  std::string function;      // demangled; empty: not exported by the file

  // "c10d::Store::wait (libtorch_cpu.so)", "libc.so.6+0x1234", "0x7f12".
  std::string Short() const;
};

struct PythonFrame {
  std::string file;
  int line = 0;
  std::string function;

  // "workdir/train.py:9 in backward": the file name with its folder.
  std::string Short() const;
};

struct ThreadStack {
  int thread = 0;  // tid; 0: a thread that only Python knows
  std::string name;
  bool answered = false;    // if false, the thread did not print its stack, and `unanswered` says why and what it does
  std::string unanswered;   // "it blocks the signal; state S, in system call 202"
  std::string native_note;  // "and more frames", "the stack is broken here"; empty: it is complete
  std::vector<NativeFrame> native;  // innermost first
  std::vector<PythonFrame> python;  // innermost first; empty: no Python
  bool is_current = false;          // Python's current thread: the one that handled the signal

  // Where the thread is, for comparing two dumps of one process: equal keys mean the same place. Consists of the calls,
  // with Python's line numbers, but without the current instruction, which moves while a thread waits in a loop.
  std::string Key() const;
  // Functions only: also equal while a loop iterates within one function.
  std::string FunctionKey() const;
};

struct StackDump {
  std::vector<std::uint32_t> requests;  // the request numbers that it answers
  int process = 0;
  double unix_seconds = 0;
  bool whole = false;                // ends with its last line
  std::string note;                  // why no threads, or not all threads, have stacks; usually empty
  std::string python_note;           // why a Python program has no Python stacks; empty: they are present
  std::vector<ThreadStack> threads;  // the one that handled the signal first, usually the main thread
  std::vector<std::string> files;    // full paths of the files of the frames

  bool Answers(std::uint32_t request) const;
};

// All dumps of a file, oldest first; at most the last 64. The last one may be truncated.
std::vector<StackDump> ParseStackDumps(std::string_view text);

// For this machine's kernel: "futex"; "system call 999" if the name is unknown.
std::string SystemCallName(long number);

// Demangles "_ZN4c10d5Store4waitEv"; omits template arguments and parameters if `shortly`. Returns other names
// unchanged.
std::string Demangled(const std::string& name, bool shortly);

}  // namespace fulldeck::diagnosis
