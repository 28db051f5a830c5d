// What the kernel tells of a process that does not tell its stacks itself: its threads and what they wait for, and the
// processes that it started. Reads /proc below a root; what is not there or not ours to see is left out.
#pragma once

#include <string>
#include <vector>

#include "base/files/system_root.h"

namespace fulldeck::diagnosis {

struct ThreadFacts {
  int thread = 0;
  std::string name;
  char state = '?';                       // R S D T t Z, as /proc gives it
  std::string wait_channel;               // kernel function in which it sleeps; empty: none, or not ours to see
  std::string system_call;                // "futex", "system call 123", "running", empty: not ours to see
  std::vector<std::string> kernel_stack;  // needs root; of threads in state D alone

  // "thread 4058 python: in the kernel, uninterruptible (state D), in read, at io_schedule"
  std::string ToString() const;
};

struct ChildFacts {
  int pid = 0;
  int parent = 0;
  char state = '?';
  std::string command;  // printable, cut
};

// At most 1024 threads.
std::vector<ThreadFacts> ReadThreads(int pid, const base::SystemRoot& root);

// Descendants of each process, at most 64 each, nearest first; /proc is read once for all.
std::vector<std::vector<ChildFacts>> ReadChildren(const std::vector<int>& pids, const base::SystemRoot& root);

// "running (state R)", "stopped (state T)".
std::string DescribeState(char state);

struct SignalFacts {
  bool caught = false;    // the process has a handler for it
  bool takeable = false;  // a thread does not block it
  int tracer = 0;         // a debugger or the like; 0: none
};
SignalFacts ReadSignalFacts(int pid, int signal_number, const base::SystemRoot& root);

}  // namespace fulldeck::diagnosis
