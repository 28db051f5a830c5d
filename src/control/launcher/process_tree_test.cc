#include "launcher/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "base/clock.h"
#include "base/subprocess.h"

namespace fulldeck::launcher {
namespace {

bool Eventually(const std::function<bool()>& condition) {
  const base::Clock& clock = base::SteadyClock::Instance();
  const base::TimePoint deadline = clock.Now() + std::chrono::seconds(20);
  while (!condition()) {
    if (clock.Now() > deadline) return false;
    usleep(2000);
  }
  return true;
}

pid_t StartShell(const std::string& script) {
  base::SpawnOptions options;
  options.arguments = {"/bin/sh", "-c", script};
  const auto pid = base::Spawn(options);
  EXPECT_TRUE(pid.ok());
  return pid.ok() ? *pid : -1;
}

std::size_t CountOf(const std::string& command) {
  const std::vector<TreeProcess> all = Descendants(getpid());
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const TreeProcess& process) { return process.command == command; }));
}

TEST(ProcessTree, FindsGrandchildrenAndDaemonsAndKillsThemAll) {
  ASSERT_TRUE(BecomeSubreaper().ok());
  // A grandchild, and a daemon: its parents are gone, and it has its own session.
  StartShell("sleep 1000 & (setsid sleep 1001 &) ; sleep 1002");
  ASSERT_TRUE(Eventually([] { return CountOf("sleep") == 3; }));
  EXPECT_GE(SignalDescendants(getpid(), SIGKILL), 4);
  EXPECT_TRUE(Eventually([] {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return !HasChildren();
  }));
  EXPECT_TRUE(Descendants(getpid()).empty());
}

TEST(ProcessTree, SparesWhatIsExcluded) {
  const pid_t spared = StartShell("sleep 1000");
  const pid_t other = StartShell("sleep 1000");
  ASSERT_TRUE(Eventually([] { return CountOf("sleep") == 2; }));
  SignalDescendants(getpid(), SIGKILL, {spared});
  int status = 0;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(waitpid(spared, &status, WNOHANG), 0);
  kill(-spared, SIGKILL);
  EXPECT_EQ(waitpid(spared, &status, 0), spared);
}

TEST(ProcessTree, KnowsWhetherAProcessCatchesASignal) {
  const pid_t catches = StartShell("trap : USR1; while :; do sleep 0.1; done");
  const pid_t dies = StartShell("while :; do sleep 0.1; done");
  EXPECT_TRUE(Eventually([&] { return CatchesSignal(catches, SIGUSR1); }));
  EXPECT_FALSE(CatchesSignal(dies, SIGUSR1));
  EXPECT_FALSE(CatchesSignal(catches, SIGUSR2));
  for (const pid_t pid : {catches, dies}) {
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  EXPECT_FALSE(CatchesSignal(catches, SIGUSR1)) << "it no longer exists";
}

}  // namespace
}  // namespace fulldeck::launcher
