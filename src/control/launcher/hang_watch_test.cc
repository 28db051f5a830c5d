#include "launcher/hang_watch.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
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

// A child process that runs one function and is killed at the end.
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

  // The first sample for which `enough` holds, or the last one after 20 s.
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

// A connection to a server that never sends.
int SilentConnection() {
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  const bool connected = bind(server, where, size) == 0 && listen(server, 1) == 0 &&
                         getsockname(server, where, &size) == 0 && connect(client, where, size) == 0;
  return connected ? client : -1;
}

void WatchInALoop(int descriptor) {
  const int loop = epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(loop, EPOLL_CTL_ADD, descriptor, &event) != 0) _exit(2);
  epoll_wait(loop, &event, 1, -1);
}

void ReadPipe() {
  int ends[2];
  char byte = 0;
  if (pipe(ends) == 0 && read(ends[0], &byte, 1) < 0) _exit(2);
}

// A process that creates a child and then waits.
std::function<void()> WithChildThat(const std::function<void()>& does, const std::function<void(pid_t)>& waits) {
  return [=] {
    const pid_t parent = getpid();
    if (const pid_t child = fork(); child != 0) return waits(child);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);  // it was killed before the line above
    does();
  };
}

TEST(SampleProcess, ShowsIoOfThreadsAndChildrenThatTheMainThreadMayWaitFor) {
  const auto waits_for = [](pid_t child) { waitpid(child, nullptr, 0); };
  const auto sleeps = [](pid_t) { sleep(600); };
  const auto with_thread = [](const std::function<void()>& does) {
    return [does] {
      std::thread(does).detach();
      LockTwice();
    };
  };
  struct Row {
    const char* what;
    std::function<void()> does;
    bool io;
  };
  const Row rows[] = {
      {"an event loop with a connection, in a thread", with_thread([] { WatchInALoop(SilentConnection()); }), true},
      {"an event loop without one, in a thread", with_thread([] { WatchInALoop(SilentSocket()); }), false},
      {"a child with an upload in a thread, waited for", WithChildThat(with_thread(Receive), waits_for), true},
      {"a child with an event loop in a thread, waited for",
       WithChildThat(with_thread([] { WatchInALoop(SilentConnection()); }), waits_for), true},
      {"a child that uploads, looked at every now and then",
       WithChildThat(
           [] {
             char byte = 0;
             recv(SilentConnection(), &byte, 1, 0);
           },
           sleeps),
       true},
      {"a child that uploads with a timeout, looked at every now and then",
       WithChildThat(
           [] {
             pollfd one{SilentConnection(), POLLIN, 0};
             poll(&one, 1, -1);
           },
           sleeps),
       true},
      {"a child that uploads in a thread, waited for in a lock",
       WithChildThat(with_thread([] { WatchInALoop(SilentConnection()); }), [](pid_t) { LockTwice(); }), true},
      {"an idle worker of a data loader, and a sleep", WithChildThat(ReadPipe, sleeps), false},
      {"a worker that polls a pipe, and a sleep",
       WithChildThat(
           [] {
             int ends[2];
             pollfd one{pipe(ends) == 0 ? ends[0] : -1, POLLIN, 0};
             poll(&one, 1, -1);
           },
           sleeps),
       false}};
  for (const Row& row : rows) {
    const Child child(row.does);
    if (row.io) {
      EXPECT_TRUE(child.Sample([](const ProcessSample& seen) { return seen.a_worker_in_io; }).a_worker_in_io)
          << row.what;
      continue;
    }
    const ProcessSample sample = child.Sample([](const ProcessSample& seen) {
      return seen.wait.kind == WaitKind::kLock || seen.wait.kind == WaitKind::kSleep;
    });
    EXPECT_FALSE(sample.a_worker_in_io) << row.what;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // lets the child begin to wait
    EXPECT_FALSE(child.Sample([](const ProcessSample&) { return true; }).a_worker_in_io) << row.what;
  }
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
