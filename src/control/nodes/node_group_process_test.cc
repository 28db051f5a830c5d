// Nodes as separate processes, killed and stopped with real signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "base/subprocess.h"
#include "base/text.h"
#include "nodes/node_group.h"
#include "test_nodes.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::FreePort;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

void Send(int fd, const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
}

// What a launcher does, without ranks: writes each event as a line to `fd`. SIGUSR1 means "a rank failed here",
// SIGTERM is the user's stop.
[[noreturn]] void RunLauncher(const NodeGroupOptions& options, int fd) {
  base::EventLoop loop;
  NodeGroupEvents events;
  std::unique_ptr<NodeGroup> group;
  events.take_master_port = [] { return base::Result<int>(40001); };
  events.start = [&](const AttemptStart& start) { Send(fd, "start " + std::to_string(start.group_rank)); };
  events.stop = [&](const NodeFailure&) {
    Send(fd, "stop");
    group->Stopped();
  };
  events.finished = [&](const std::optional<NodeFailure>& failure) {
    Send(fd, failure ? "failed " + failure->host_name + ": " + failure->summary : "well");
    loop.Stop();
  };
  events.gave_up = [&](const std::string& reason) {
    Send(fd, "gave up " + reason);
    loop.Stop();
  };
  group = std::make_unique<NodeGroup>(loop, options, events);
  const auto signals = loop.OnSignals({SIGUSR1, SIGUSR2, SIGTERM}, [&](int number) {
    if (number == SIGUSR2) return group->Succeeded();
    NodeFailure failure;
    failure.summary = number == SIGTERM ? "stopped by SIGTERM" : "rank failed";
    failure.by_request = number == SIGTERM;
    group->Failed(failure);
    group->Stopped();
  });
  if (!signals.ok() || !group->Join().ok()) _exit(3);
  loop.Run();
  group.reset();
  _exit(0);
}

class Launchers : public ::testing::Test {
 protected:
  struct Process {
    pid_t pid = -1;
    base::UniqueFd lines;
    std::string text;
    bool ended = false;
  };
  ~Launchers() override {
    for (auto& [name, process] : processes_) {
      if (process.pid <= 0) continue;
      kill(process.pid, SIGKILL);
      waitpid(process.pid, nullptr, 0);
    }
  }
  void Start(int nodes) {
    for (int i = 0; i < nodes; ++i) {
      NodeGroupOptions options;
      options.endpoint_host = "127.0.0.1";
      options.endpoint_port = port_;
      options.min_nodes = options.max_nodes = nodes;
      options.host_name = std::string(1, static_cast<char>('A' + i));
      options.node_rank = i;
      options.silence_limit = silence_limit_;
      auto pipe = base::MakePipe();
      ASSERT_TRUE(pipe.ok());
      std::fflush(nullptr);  // otherwise both processes would write the buffered output
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        pipe->read_end.Reset();
        RunLauncher(options, pipe->write_end.get());
      }
      ASSERT_TRUE(base::SetNonBlocking(pipe->read_end.get()).ok());
      processes_[options.host_name] = {pid, std::move(pipe->read_end), "", false};
    }
    for (const auto& [name, process] : processes_) ASSERT_TRUE(WaitFor(name, "start ")) << processes_[name].text;
  }
  void Signal(const std::string& name, int number) { ASSERT_EQ(kill(processes_[name].pid, number), 0); }
  // Waits until the launcher has written a line that contains `part`.
  bool WaitFor(const std::string& name, const std::string& part, base::Duration timeout = 30s) {
    Process& process = processes_[name];
    const base::TimePoint deadline = base::SteadyClock::Instance().Now() + timeout;
    while (process.text.find(part) == std::string::npos) {
      char buffer[4096];
      const ssize_t got = read(process.lines.get(), buffer, sizeof buffer);
      if (got > 0) process.text.append(buffer, static_cast<std::size_t>(got));
      if (got == 0) return process.text.find(part) != std::string::npos;
      if (base::SteadyClock::Instance().Now() > deadline) return false;
      if (got < 0) usleep(1000);
    }
    return true;
  }
  // The complete line that reports the end.
  std::string EndOf(const std::string& name) {
    EXPECT_TRUE(WaitFor(name, "failed ")) << name << ": " << processes_[name].text;
    const std::string& text = processes_[name].text;
    const auto at = text.find("failed ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  }

  int port_ = FreePort();
  // Longer than a busy machine may keep a launcher from running.
  std::chrono::milliseconds silence_limit_ = 10s;
  std::map<std::string, Process> processes_;
};

TEST_F(Launchers, AllNameTheMemberThatWasKilled) {
  Start(3);
  Signal("B", SIGKILL);
  EXPECT_THAT(EndOf("A"), HasSubstr("failed B: the launcher of host B (127.0.0.1) ended without a word"));
  EXPECT_THAT(EndOf("C"), HasSubstr("failed B: the launcher of host B (127.0.0.1) ended without a word"));
}

TEST_F(Launchers, AllNameTheCoordinatorThatWasKilled) {
  Start(3);
  Signal("A", SIGKILL);
  EXPECT_THAT(EndOf("B"), HasSubstr("failed A: the launcher of host A (127.0.0.1) ended without a word"));
  EXPECT_THAT(EndOf("C"), HasSubstr("failed A: the launcher of host A (127.0.0.1) ended without a word"));
}

TEST_F(Launchers, TheOneThatStandsStillIsNamedAndAgreesWhenItGoesOn) {
  silence_limit_ = 3s;
  Start(2);
  Signal("B", SIGSTOP);
  EXPECT_THAT(EndOf("A"), HasSubstr("failed B: no word from host B"));
  Signal("B", SIGCONT);
  EXPECT_THAT(EndOf("B"), HasSubstr("failed B: "));
}

TEST_F(Launchers, ACoordinatorThatStandsStillIsNoticedAndAgreesOnTheNode) {
  silence_limit_ = 3s;
  Start(2);
  Signal("A", SIGSTOP);
  // "for 3 s", or later: not before the limit.
  EXPECT_THAT(EndOf("B"), ContainsRegex("^failed B: no word from host A [(]127[.]0[.]0[.]1[)] for "
                                        "([3-9]|[1-9][0-9]+)([.][0-9])? s: "));
  Signal("A", SIGCONT);
  EXPECT_THAT(EndOf("A"), HasSubstr("failed B: "));
}

TEST_F(Launchers, AShortStandstillIsNoFailure) {
  Start(2);
  for (const char* name : {"A", "B"}) {
    Signal(name, SIGSTOP);
    // Longer than one heartbeat interval.
    EXPECT_FALSE(WaitFor("B", "stop", 1500ms));
    Signal(name, SIGCONT);
    EXPECT_FALSE(WaitFor("A", "stop", 700ms));
  }
  Signal("A", SIGUSR2);
  Signal("B", SIGUSR2);
  EXPECT_TRUE(WaitFor("A", "well"));
  EXPECT_TRUE(WaitFor("B", "well"));
}

TEST_F(Launchers, AllNameTheNodeWhoseUserStoppedIt) {
  Start(3);
  Signal("C", SIGTERM);
  for (const char* name : {"A", "B", "C"}) EXPECT_EQ(EndOf(name), "failed C: stopped by SIGTERM") << name;
}

// Both nodes fail within a millisecond of each other, repeatedly. Whichever was first, all must agree.
TEST_F(Launchers, AgreeWhenTwoFailAtOnce) {
  for (int round = 0; round < 5; ++round) {
    Start(3);
    Signal("B", SIGUSR1);
    Signal("A", SIGUSR1);
    const std::string verdict = EndOf("A");
    EXPECT_EQ(EndOf("B"), verdict);
    EXPECT_EQ(EndOf("C"), verdict);
    for (auto& [name, process] : processes_) {
      waitpid(process.pid, nullptr, 0);
      process.pid = -1;
    }
    processes_.clear();
    port_ = FreePort();
  }
}

}  // namespace
}  // namespace fulldeck::nodes
