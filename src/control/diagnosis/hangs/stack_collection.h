// Asks the ranks of a run for their stacks, all at once, and waits for the answers without blocking the loop. For the
// launcher's verdict on a hang and for `fulldeck stacks`.
//
//   StackCollection collection(loop, targets, {}, [&](std::vector<RankStacks> ranks) {
//     for (const RankStacks& rank : ranks) for (const std::string& line : rank.Lines()) Say(line);
//     const auto path = SaveStacks(run_directory, ranks);           // "…/stacks-0.txt"
//   });
//
// Each rank that has the agent writes its own stacks (docs/rank-agent.md), so eight take no longer than one. Where that
// cannot be (no agent, all threads block the signal, the kernel holds the rank, a debugger has it) the facts of /proc
// stand in its place, with the reason. A process is signaled only while it is the very one that is meant (pid and
// start time), catches the signal, and has a thread that does not block it: a rank never dies of being asked.
//
// A stopped rank gets the request first and SIGCONT behind it, and SIGSTOP again as soon as it has answered or the
// timeout is over: it runs for a few milliseconds. Its parent is told both by the kernel (WIFCONTINUED, WIFSTOPPED);
// a supervisor that collects asks WasContinuedByUs before it tells anybody.
//
// Thread rule: everything on the loop's thread. Nothing here reaps a child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/files/system_root.h"
#include "base/result.h"
#include "diagnosis/hangs/process_facts.h"
#include "diagnosis/hangs/stack_dump.h"
#include "wire/process_identity.h"

namespace fulldeck::diagnosis {

struct StackTarget {
  int rank = 0;                   // in the whole run; for people
  wire::ProcessIdentity process;  // from the launcher or the registry, never from the board; start_ticks must be known
  int signal = 0;                 // RankProcess::stack_signal of the board, if that names the same process; 0: none
  std::string file;               // the rank's FULLDECK_STACK_FILE
};

struct RankStacks {
  int rank = 0;
  wire::ProcessIdentity process;
  std::optional<StackDump> dump;     // what the rank told of itself; may be cut short (dump->whole)
  std::string why_none;              // why there is no dump, or no whole one; empty: it is whole
  bool was_stopped = false;          // it was found stopped, continued for this, and stopped again
  base::Duration took{};             // from the request to the answer
  char state = '?';                  // of the process, before it was asked; '?': it is gone
  std::vector<ThreadFacts> threads;  // where there is no whole dump
  std::vector<ChildFacts> children;  // descendants: loader workers and the like; at most 64

  // Told by the rank itself, whole.
  bool complete() const { return dump && dump->whole; }
  // The thread that matters: the main thread, else the first; nullptr when there is no dump.
  const ThreadStack* main_thread() const;
  // Where the main thread is, in a few words: the innermost Python frame of the program's own files, else of any file;
  // without Python the innermost frame that is not of the C library. Empty: not known.
  std::string MainPlace() const;
  // Equal keys of two collections of the same process: no thread has gone on. Empty when there is no whole dump:
  // nothing can be said then. FunctionKey as ThreadStack's.
  std::string Key() const;
  std::string FunctionKey() const;

  // For people: a heading, then each thread with Python's stack first and native frames behind it in a short form, the
  // main thread first. Threads in the same place are shown once. `max_frames` of each stack; the rest is counted.
  std::vector<std::string> Lines(std::size_t max_frames = 24) const;
  // The same with nothing left out: whole paths, the interpreter's own frames, all frames.
  std::vector<std::string> AllLines() const;
};

struct StackCollectionOptions {
  base::Duration timeout = std::chrono::milliseconds(2'000);  // 8 ranks answer within this
  base::SystemRoot root{"/"};                                 // for tests of the facts; signals go to this machine
};

class StackCollection {
 public:
  using Done = std::function<void(std::vector<RankStacks>)>;

  // Asks at once. `done` is called once, from the loop, never from here: when the last rank has answered or the
  // timeout is over; one RankStacks for each target, in their order. It may destroy the collection.
  StackCollection(base::EventLoop& loop, std::vector<StackTarget> targets, const StackCollectionOptions& options,
                  Done done);
  // Before `done`: nobody is called, and what was continued is stopped again.
  ~StackCollection();
  StackCollection(const StackCollection&) = delete;
  StackCollection& operator=(const StackCollection&) = delete;

  // Whether this collection has let that stopped process run, or has just stopped it again.
  bool WasContinuedByUs(pid_t pid) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes what AllLines gives to `folder`/stacks-N.txt with the first free N, mode 0600. Its path.
base::Result<std::string> SaveStacks(const std::string& folder, const std::vector<RankStacks>& ranks);

}  // namespace fulldeck::diagnosis
