// Facts from the kernel about a process that does not report its stacks itself: its threads, what they wait for, and
// its children. Reads /proc below a root; omits what does not exist or is not readable.
#pragma once

#include <string>
#include <vector>

#include "base/files/system_root.h"

namespace fulldeck::diagnosis {

struct ThreadFacts {
  int thread = 0;
  std::string name;
  char state = '?';                       // R S D T t Z, as in /proc
  std::string wait_channel;               // kernel function in which it sleeps; empty: none, or not readable
  std::string system_call;                // "futex", "system call 123", "running"; empty: not readable
  std::vector<std::string> kernel_stack;  // requires root; only threads in state D

  // "thread 4058 python: in the kernel, uninterruptible (state D), in read, at io_schedule"
  std::string ToString() const;
};

struct ChildFacts {
  int pid = 0;
  int parent = 0;
  char state = '?';
  std::string command;  // printable, truncated
};

// Returns at most 1024 threads.
std::vector<ThreadFacts> ReadThreads(int pid, const base::SystemRoot& root);

// Descendants of each process, at most 64 per process, nearest first. Reads /proc once for all.
std::vector<std::vector<ChildFacts>> ReadChildren(const std::vector<int>& pids, const base::SystemRoot& root);

// "running (state R)", "stopped (state T)".
std::string DescribeState(char state);

struct SignalFacts {
  bool caught = false;    // the process has a handler for it
  bool takeable = false;  // a thread does not block it
  int tracer = 0;         // pid of a debugger or the like; 0: none
};
SignalFacts ReadSignalFacts(int pid, int signal_number, const base::SystemRoot& root);

}  // namespace fulldeck::diagnosis
