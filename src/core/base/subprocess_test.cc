#include "base/subprocess.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace fulldeck::base {
namespace {

using testing::HasSubstr;

// Runs a shell script until it exits and returns what it wrote to descriptor 1.
std::string OutputOf(SpawnOptions options, const std::string& script) {
  auto pipe = MakePipe();
  EXPECT_TRUE(pipe.ok());
  options.arguments = {"/bin/sh", "-c", script};
  options.descriptors.emplace_back(1, pipe->write_end.get());
  const auto pid = Spawn(options);
  EXPECT_TRUE(pid.ok());
  pipe->write_end.Reset();
  std::string text;
  char chunk[256];
  for (ssize_t got = 0; (got = read(pipe->read_end.get(), chunk, sizeof chunk)) > 0;) {
    text.append(chunk, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
  return text;
}

TEST(Spawn, RunsAProgramWithTheGivenEnvironmentOnly) {
  SpawnOptions options;
  options.environment = {"COLOUR=green"};
  EXPECT_EQ(OutputOf(options, "echo $COLOUR$HOME"), "green\n");
}

TEST(Spawn, ReportsAMissingProgramToTheCaller) {
  SpawnOptions options;
  options.arguments = {"/no/such/program"};
  const auto pid = Spawn(options);
  ASSERT_FALSE(pid.ok());
  EXPECT_THAT(pid.error().message, HasSubstr("/no/such/program"));
  EXPECT_EQ(pid.error().system_error, ENOENT);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "the failed child should have been reaped";
}

TEST(Spawn, GivesTheChildItsPidInAVariable) {
  SpawnOptions options;
  options.environment = {"COLOUR=green"};
  options.pid_variable = "OWN_PID";
  EXPECT_EQ(OutputOf(options, "test $OWN_PID = $$ && echo same $COLOUR"), "same green\n");
}

TEST(Spawn, BindsTheChildToTheGivenCpus) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) last = CPU_ISSET(cpu, &mine) ? cpu : last;
  SpawnOptions options;
  options.cpus = {last};
  EXPECT_EQ(OutputOf(options, "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status"),
            std::to_string(last) + "\n");
}

TEST(Spawn, SeveralChildrenCanBeStartedBeforeAnyIsWaitedFor) {
  SpawnOptions good;
  good.arguments = {"/bin/true"};
  SpawnOptions bad;
  bad.arguments = {"/no/such/program"};
  auto first = StartProcess(good);
  auto second = StartProcess(bad);
  auto third = StartProcess(good);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_FALSE(WaitForExec(*second).ok());
  for (StartedProcess* started : {&*first, &*third}) {
    const auto pid = WaitForExec(*started);
    ASSERT_TRUE(pid.ok());
    EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
  }
}

TEST(Spawn, ReportsAProgramWithoutPermission) {
  SpawnOptions options;
  options.arguments = {"/etc/passwd"};
  const auto pid = Spawn(options);
  ASSERT_FALSE(pid.ok());
  EXPECT_EQ(pid.error().system_error, EACCES);
}

TEST(Spawn, StartsASessionOfItsOwn) {
  EXPECT_EQ(OutputOf(SpawnOptions(), "test $(cut -d' ' -f6 /proc/self/stat) -eq $$ && echo own"), "own\n");
}

TEST(Spawn, WiresDescriptorsThatTradePlaces) {
  auto first = MakePipe();
  auto second = MakePipe();
  ASSERT_TRUE(first.ok() && second.ok());
  SpawnOptions options;
  // Each end is wired to the other's number.
  const int a = first->write_end.get();
  const int b = second->write_end.get();
  options.descriptors = {{a, b}, {b, a}};
  OutputOf(options, "echo to-a >&" + std::to_string(a) + "; echo to-b >&" + std::to_string(b));
  char text[16] = {};
  ASSERT_GT(read(second->read_end.get(), text, sizeof text - 1), 0);
  EXPECT_STREQ(text, "to-a\n");
}

TEST(Spawn, UnblocksSignalsInTheChild) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  EXPECT_EQ(OutputOf(SpawnOptions(), "kill -TERM $$; echo still-here"), "");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Spawn, SendsTheDeathSignalWhenTheParentDies) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  const pid_t parent = fork();
  if (parent == 0) {
    SpawnOptions options;
    options.arguments = {"/bin/sleep", "600"};
    options.descriptors = {{1, pipe->write_end.get()}};
    options.parent_death_signal = SIGKILL;
    _exit(Spawn(options).ok() ? 0 : 1);
  }
  pipe->write_end.Reset();
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  char byte = 0;
  // The pipe reports end of file when its last writer, the sleeper, is gone.
  EXPECT_EQ(read(pipe->read_end.get(), &byte, 1), 0);
}

TEST(Spawn, AChildThatMayNotEnterItsCgroupStartsAndIsReported) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  const UniqueFd open_to_all(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const UniqueFd no_cgroup(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(full.valid() && open_to_all.valid() && no_cgroup.valid());
  const auto run = [](int born_into, std::vector<int> enters) {
    SpawnOptions options;
    options.arguments = {"/bin/true"};
    options.clone_into_cgroup = born_into;
    options.join_cgroups = std::move(enters);
    auto started = StartProcess(options);
    EXPECT_TRUE(started.ok());
    const auto pid = WaitForExec(*started);
    EXPECT_TRUE(pid.ok());
    int status = -1;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
    EXPECT_EQ(status, 0);
    return started->cgroup_error;
  };
  EXPECT_EQ(run(-1, {full.get()}), ENOSPC);
  EXPECT_EQ(run(-1, {open_to_all.get(), full.get()}), ENOSPC);
  EXPECT_EQ(run(-1, {open_to_all.get()}), 0);
  EXPECT_NE(run(no_cgroup.get(), {}), 0);
}

TEST(Spawn, ADescriptorAboveTheLimitIsAnError) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{256, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (const int number : {300, 255}) {
    SpawnOptions options;
    options.arguments = {"/bin/true"};
    options.descriptors = {{number, STDERR_FILENO}};
    const auto pid = Spawn(options);
    EXPECT_FALSE(pid.ok()) << number;
    if (pid.ok()) {
      waitpid(*pid, nullptr, 0);
    } else {
      EXPECT_EQ(pid.error().system_error, EMFILE);
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace
}  // namespace fulldeck::base
