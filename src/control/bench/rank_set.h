// The ranks of one library, as the bench holds them: starts their processes, hears their greetings, gives them all the
// same order and collects the answers. Between orders they sleep in a read, so several sets can wait without disturbing
// the one that is measured.
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
  std::vector<base::SpawnOptions> processes;  // one a rank, or one that starts them all
};

class RankSet {
 public:
  // What the greetings came to.
  struct Started {
    std::unique_ptr<RankSet> set;       // nullptr: see the others
    std::optional<std::string> absent;  // the library is not here, in its own words
    std::optional<std::string> failed;
  };

  // `folder` takes the socket (whose path the processes get from `command`'s maker, see SocketPath) and what the
  // processes print. `interrupted` is looked at while waiting.
  static Started Start(base::EventLoop& loop, const bool& interrupted, RankCommand command, const std::string& folder,
                       base::Duration timeout);
  static std::string SocketPath(const std::string& folder, const RankCommand& command);
  ~RankSet();
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  // Sends the line to all, and waits until all have answered, one answer is `final` (the others may then be waiting for
  // that rank), a process has ended, or the time is over. Answers by rank; the error says what went wrong otherwise,
  // after which the set is of no more use.
  base::Result<std::vector<std::optional<std::string>>> Request(const std::string& line, base::Duration timeout,
                                                                const std::function<bool(const std::string&)>& final);

  // A process that has ended before it was told to.
  struct Ended {
    int process = 0;            // its place in the command
    std::optional<int> status;  // as waitpid gives it
  };
  const std::vector<Ended>& ended() const { return ended_; }
  // What the last question has brought, also when it failed.
  const std::vector<std::optional<std::string>>& answers() const { return answers_; }

  const std::string& about() const { return about_; }  // of rank 0
  const std::string& name() const { return command_.name; }
  int ranks() const { return command_.ranks; }

 private:
  struct Connection {
    base::UniqueFd socket;
    base::EventLoop::Id watch = 0;
    std::string received;
    int rank = -1;  // not yet greeted
    bool closed = false;
  };

  RankSet(base::EventLoop& loop, const bool& interrupted, RankCommand command, std::string folder);
  base::Result<void> Listen();
  base::Result<void> Spawn();
  void Accept();
  void Read(Connection& connection);
  void TakeLine(Connection& connection, const std::string& line);
  void Greet(Connection& connection, const std::string& line);
  // False when the time is over.
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
  std::map<pid_t, base::EventLoop::Id> processes_;  // those that have not ended
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
