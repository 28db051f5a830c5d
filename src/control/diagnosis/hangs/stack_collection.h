// Requests the stacks of all ranks of a run at the same time, and waits for the answers without blocking the loop. Used
// by the hang detection of the launcher and by `fulldeck stacks`.
//
//   StackCollection collection(loop, targets, {}, [&](std::vector<RankStacks> ranks) {
//     for (const RankStacks& rank : ranks) for (const std::string& line : rank.Lines()) Say(line);
//     const auto path = SaveStacks(run_directory, ranks);           // "…/stacks-0.txt"
//   });
//
// Each rank that has the agent writes its own stacks (docs/rank-agent.md), so eight ranks take no longer than one. If
// that is impossible (no agent, all threads block the signal, the kernel blocks the rank, a debugger is attached),
// facts from /proc are returned instead, with the reason. A process is signaled only if it is the intended one (pid and
// start time), handles the signal, and has a thread that does not block it: a request never kills a rank.
//
// A stopped rank gets the request, then SIGCONT, and SIGSTOP again as soon as it has answered or the timeout has
// expired; it runs for a few milliseconds. The kernel reports both to its parent (WIFCONTINUED, WIFSTOPPED); a
// supervisor that collects must check WasContinuedByUs before it reports them.
//
// Use only on the loop's thread. Reaps no child.
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
  int rank = 0;                   // global rank; only for messages
  wire::ProcessIdentity process;  // from the launcher or the registry, never from the board; start_ticks must be known
  int signal = 0;    // RankProcess::stack_signal of the board if that record is of the same process; 0: none
  std::string file;  // the rank's FULLDECK_STACK_FILE
};

struct RankStacks {
  int rank = 0;
  wire::ProcessIdentity process;
  std::optional<StackDump> dump;     // the rank's own answer; may be truncated (dump->whole)
  std::string why_none;              // why there is no dump or no complete one; empty: it is complete
  bool was_stopped = false;          // it was stopped, was continued for the request, and stopped again
  base::Duration took{};             // from the request to the answer
  char state = '?';                  // state of the process before the request; '?': it is gone
  std::vector<ThreadFacts> threads;  // if there is no complete dump
  std::vector<ChildFacts> children;  // descendants such as data loader workers; at most 64

  // The rank itself has answered completely.
  bool complete() const { return dump && dump->whole; }
  // The main thread, otherwise the first thread; nullptr if there is no dump.
  const ThreadStack* main_thread() const;
  // Short description of where the main thread is: the innermost Python frame of the program's own files, otherwise of
  // any file; without Python, the innermost frame outside the C library. Empty: unknown.
  std::string MainPlace() const;
  // Equal keys of two collections of the same process mean that no thread has moved. Empty if there is no complete
  // dump, so that no statement is possible. FunctionKey is analogous to ThreadStack's.
  std::string Key() const;
  std::string FunctionKey() const;

  // Human-readable: a heading, then each thread with its Python stack followed by a short form of its native frames,
  // the main thread first. Threads at the same place are shown once. Shows `max_frames` of each stack and counts the
  // others.
  std::vector<std::string> Lines(std::size_t max_frames = 24) const;
  // The same without omissions: full paths, the interpreter's frames, all frames.
  std::vector<std::string> AllLines() const;
};

struct StackCollectionOptions {
  base::Duration timeout = std::chrono::milliseconds(2'000);  // enough for 8 ranks to answer
  base::SystemRoot root{"/"};  // for tests of the facts; signals always go to this machine
};

class StackCollection {
 public:
  using Done = std::function<void(std::vector<RankStacks>)>;

  // Sends the requests immediately. `done` is called once, from the loop, never from the constructor: when the last
  // rank has answered or the timeout has expired, with one RankStacks per target, in their order. It may destroy the
  // collection.
  StackCollection(base::EventLoop& loop, std::vector<StackTarget> targets, const StackCollectionOptions& options,
                  Done done);
  // Before `done` was called: `done` is dropped, and continued ranks are stopped again.
  ~StackCollection();
  StackCollection(const StackCollection&) = delete;
  StackCollection& operator=(const StackCollection&) = delete;

  // Whether this collection has continued that stopped process, or has just stopped it again.
  bool WasContinuedByUs(pid_t pid) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes AllLines to `folder`/stacks-N.txt with the first free N, mode 0600. Returns the path.
base::Result<std::string> SaveStacks(const std::string& folder, const std::vector<RankStacks>& ranks);

}  // namespace fulldeck::diagnosis
