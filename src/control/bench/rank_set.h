// The ranks of one library, from the bench's side: starts their processes, reads their greetings, sends all of them the
// same command and collects the answers. Between commands they sleep in a read, so idle sets do not disturb the one
// that is measured.
//
// Not thread safe; everything happens inside Start, Request and End, on the caller's event loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "base/subprocess.h"

namespace fulldeck::bench {

struct RankCommand {
  std::string name;  // for messages and file names: "gloo"
  int ranks = 1;
  std::vector<base::SpawnOptions> processes;  // one per rank, or one that starts them all
};

class RankSet {
 public:
  // The result of the greetings.
  struct Started {
    std::unique_ptr<RankSet> set;       // nullptr: see the other members
    std::optional<std::string> absent;  // the library is not installed; its own message
    std::optional<std::string> failed;
  };

  // `folder` holds the socket (the maker of `command` passes its path to the processes, see SocketPath) and the output
  // of the processes. `interrupted` is polled while waiting.
  static Started Start(base::EventLoop& loop, const bool& interrupted, RankCommand command, const std::string& folder,
                       base::Duration timeout);
  static std::string SocketPath(const std::string& folder, const RankCommand& command);
  ~RankSet();
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  // Sends the line to all ranks. Waits until all have answered, one answer is `final` (the others may then be waiting
  // for that rank), a process has ended, or the timeout has expired. Returns the answers by rank; after an error the
  // set is unusable.
  base::Result<std::vector<std::optional<std::string>>> Request(const std::string& line, base::Duration timeout,
                                                                const std::function<bool(const std::string&)>& final);

  // A process that has ended unexpectedly.
  struct Ended {
    int process = 0;            // index in the command
    std::optional<int> status;  // as returned by waitpid
  };
  const std::vector<Ended>& ended() const { return ended_; }
  // The answers to the last request, including a failed one.
  const std::vector<std::optional<std::string>>& answers() const { return answers_; }

  const std::string& about() const { return about_; }  // of rank 0
  const std::string& name() const { return command_.name; }
  int ranks() const { return command_.ranks; }

 private:
  struct Connection {
    base::UniqueFd socket;
    base::EventLoop::Id watch = 0;
    std::string received;
    int rank = -1;  // -1: no greeting yet
    bool closed = false;
  };

  RankSet(base::EventLoop& loop, const bool& interrupted, RankCommand command, std::string folder);
  base::Result<void> Listen();
  base::Result<void> Spawn();
  void Accept();
  void Read(Connection& connection);
  void TakeLine(Connection& connection, const std::string& line);
  void Greet(Connection& connection, const std::string& line);
  // Returns false if the timeout has expired.
  bool WaitUntil(base::Duration timeout, const std::function<bool()>& condition);
  void Fail(std::string text);
  void FailAfter(base::Duration delay, std::string text);
  std::string EndOfOutput() const;
  void End();

  base::EventLoop& loop_;
  const bool& interrupted_;
  RankCommand command_;
  const std::string folder_;
  const std::string output_path_;
  base::UniqueFd listener_;
  base::EventLoop::Id listener_watch_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<pid_t, base::EventLoop::Id> processes_;  // those that are still running
  std::vector<Ended> ended_;
  std::vector<base::EventLoop::Id> timers_;
  std::vector<std::optional<std::string>> answers_;
  int greeted_ = 0;
  std::string about_;
  std::optional<std::string> absent_;
  std::optional<std::string> failed_;
  bool in_step_ = true;  // no rank is left waiting for another
  bool stopping_ = false;
};

}  // namespace fulldeck::bench
