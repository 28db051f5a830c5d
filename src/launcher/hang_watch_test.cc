#include "launcher/hang_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "launcher/process_tree.h"

namespace fulldeck::launcher {
namespace {

using diagnosis::ProcessSample;
using diagnosis::WaitKind;

// A child that does one thing and is killed at the end.
class Child {
 public:
  explicit Child(const std::function<void()>& does) : pid_(fork()) {
    if (pid_ == 0) {
      does();
      _exit(1);
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // What is seen of it once `enough` holds, or last within 20 s.
  ProcessSample Sample(const std::function<bool(const ProcessSample&)>& enough) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (true) {
      std::vector<pid_t> descendants;
      for (const TreeProcess& process : Descendants(pid_)) descendants.push_back(process.pid);
      const auto sample = SampleProcess(base::SystemRoot(), pid_, descendants, true);
      if (!sample || enough(*sample) || std::chrono::steady_clock::now() > deadline) {
        return sample.value_or(ProcessSample());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  pid_t pid_;
};

void LockTwice() {
  static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&held);
  pthread_mutex_lock(&held);
}

int SilentSocket() {
  int ends[2];
  return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 ? ends[0] : -1;
}

void Receive() {
  char byte = 0;
  recv(SilentSocket(), &byte, 1, 0);
}

TEST(SampleProcess, ShowsWhatTheMainThreadWaitsFor) {
  struct Row {
    const char* what;
    std::function<void()> does;
    WaitKind kind;
    const char* on;
  };
  const Row rows[] = {{"a sleep", [] { sleep(600); }, WaitKind::kSleep, ""},
                      {"a socket", Receive, WaitKind::kIo, "socket"},
                      {"a pipe",
                       [] {
                         int ends[2];
                         char byte = 0;
                         if (pipe(ends) == 0 && read(ends[0], &byte, 1) < 0) _exit(2);
                       },
                       WaitKind::kIo, "pipe"},
                      {"poll of a socket",
                       [] {
                         pollfd one{SilentSocket(), POLLIN, 0};
                         poll(&one, 1, -1);
                       },
                       WaitKind::kIo, "descriptors"},
                      {"poll of nothing", [] { poll(nullptr, 0, 600'000); }, WaitKind::kSleep, ""},
                      {"a lock", LockTwice, WaitKind::kLock, ""}};
  for (const Row& row : rows) {
    const Child child(row.does);
    const ProcessSample sample =
        child.Sample([&](const ProcessSample& seen) { return seen.wait.kind == row.kind && seen.wait.on == row.on; });
    EXPECT_EQ(sample.wait.kind, row.kind) << row.what << ": " << sample.wait.call << " " << sample.place;
    EXPECT_EQ(sample.wait.on, row.on) << row.what;
    EXPECT_FALSE(sample.traced);
  }
}

TEST(SampleProcess, ShowsThatAChildForWhichItWaitsIsInIo) {
  const auto has_child_that = [](void (*does)()) {
    return [does] {
      const pid_t parent = getpid();
      if (const pid_t child = fork(); child != 0) {
        waitpid(child, nullptr, 0);
        return;
      }
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(0);  // it was killed before the line above
      does();
    };
  };
  const Child uploads(has_child_that(Receive));
  EXPECT_TRUE(uploads.Sample([](const ProcessSample& seen) { return seen.a_worker_in_io; }).a_worker_in_io);
  const Child sleeps(has_child_that([] { sleep(600); }));
  const ProcessSample sample = sleeps.Sample([](const ProcessSample& seen) { return seen.wait.call == "wait4"; });
  EXPECT_EQ(sample.wait.call, "wait4");
}

TEST(SampleProcess, ShowsADeadlockOnlyWhenNoThreadCanReleaseAnother) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer's own thread sleeps, and is in no lock";
#endif
  const Child alone(LockTwice);
  EXPECT_TRUE(alone.Sample([](const ProcessSample& seen) { return seen.all_in_locks; }).all_in_locks);

  const Child both([] {
    std::thread(LockTwice).detach();
    LockTwice();
  });
  EXPECT_TRUE(both.Sample([](const ProcessSample& seen) { return seen.all_in_locks; }).all_in_locks);

  const Child uploads([] {
    std::thread(Receive).detach();
    LockTwice();
  });
  const ProcessSample sample = uploads.Sample(
      [](const ProcessSample& seen) { return seen.a_worker_in_io && seen.wait.kind == WaitKind::kLock; });
  EXPECT_TRUE(sample.a_worker_in_io);
  EXPECT_EQ(sample.wait.kind, WaitKind::kLock);
  EXPECT_FALSE(sample.all_in_locks);

  const Child served([] {
    std::thread([] {
      pthread_setname_np(pthread_self(), "gloo_tcp_loop");
      Receive();
    }).detach();
    LockTwice();
  });
  EXPECT_TRUE(served.Sample([](const ProcessSample& seen) { return seen.all_in_locks; }).all_in_locks);
}

}  // namespace
}  // namespace fulldeck::launcher
