#include "job/runs/stop_run.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "job/cards/card_holders.h"
#include "job/runs/process_signal.h"
#include "job/runs/run_orphans.h"
#include "temporary_folder.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr base::Duration kTimeout = 60s;

// A process in its own session that waits to be signaled; `prepare` runs in it first. Reaped at the end.
class Sleeper {
 public:
  explicit Sleeper(const std::function<void()>& prepare = [] {}) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const int pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setsid();
      for (const int signal_number : {SIGTERM, SIGINT, SIGHUP}) signal(signal_number, SIG_DFL);
      prepare();
      [[maybe_unused]] const ssize_t reported = write(ready[1], "", 1);
      for (;;) pause();
    }
    close(ready[1]);
    char none = 0;
    [[maybe_unused]] const ssize_t got = read(ready[0], &none, 1);
    close(ready[0]);
    identity_ = wire::IdentityOf(pid).value_or(wire::ProcessIdentity{pid, 0});
  }
  ~Sleeper() {
    if (identity_.pid <= 0) return;
    kill(identity_.pid, SIGKILL);
    waitpid(identity_.pid, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  const wire::ProcessIdentity& identity() const { return identity_; }
  bool alive() const { return wire::IsAlive(identity_); }
  int EndedBy() {
    int status = 0;
    EXPECT_EQ(waitpid(identity_.pid, &status, 0), identity_.pid);
    identity_.pid = 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  wire::ProcessIdentity identity_;
};

void IgnoreTerm() {
  signal(SIGTERM, SIG_IGN);
}

TEST(ProcessSignal, ReachesTheVeryProcess) {
  Sleeper sleeper;
  EXPECT_EQ(SendSignal(sleeper.identity(), SIGTERM), SignalOutcome::kSent);
  EXPECT_THAT(WaitUntilGone({sleeper.identity()}, kTimeout), IsEmpty());
  EXPECT_EQ(sleeper.EndedBy(), SIGTERM);
}

TEST(ProcessSignal, SparesAProcessThatHasThePidOfAnother) {
  Sleeper sleeper;
  wire::ProcessIdentity earlier = sleeper.identity();
  earlier.start_ticks -= 1;
  EXPECT_EQ(SendSignal(earlier, SIGKILL), SignalOutcome::kGone);
  earlier.start_ticks = 0;
  EXPECT_EQ(SendSignal(earlier, SIGKILL), SignalOutcome::kGone) << "not known well enough";
  EXPECT_EQ(SendSignal(wire::ThisProcess(), SIGKILL), SignalOutcome::kGone);
  EXPECT_EQ(SendSignal({1, wire::IdentityOf(1)->start_ticks}, 0), SignalOutcome::kGone);
  EXPECT_EQ(SendSignal({-1, 5}, SIGKILL), SignalOutcome::kGone);
  EXPECT_TRUE(sleeper.alive());
}

TEST(ProcessSignal, WaitsNoLongerThanItsTimeout) {
  Sleeper sleeper;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(WaitUntilGone({sleeper.identity()}, 50ms), SizeIs(1));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 50ms);
}

TEST(ProcessSignal, StopsGentlyAndThenByForce) {
  Sleeper gentle;
  Sleeper stubborn(IgnoreTerm);
  wire::ProcessIdentity gone = gentle.identity();
  gone.start_ticks -= 1;
  const auto outcomes = StopProcesses({gentle.identity(), stubborn.identity(), gone}, 500ms, kTimeout);
  EXPECT_THAT(outcomes, ::testing::ElementsAre(StopOutcome::kEnded, StopOutcome::kKilled, StopOutcome::kGone));
}

TEST(ProcessSignal, IsRefusedForAnotherUsersProcess) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Sleeper sleeper;
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(12345) != 0) _exit(9);
    _exit(SendSignal(sleeper.identity(), SIGKILL) == SignalOutcome::kRefused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(sleeper.alive());
}

TEST(ProcessSignal, KnowsTheCallersAncestors) {
  EXPECT_TRUE(IsThisProcessOrAncestor(getpid()));
  EXPECT_TRUE(IsThisProcessOrAncestor(getppid()));
  Sleeper sleeper;
  EXPECT_FALSE(IsThisProcessOrAncestor(sleeper.identity().pid));
}

class StopRun : public ::testing::Test {
 protected:
  RunRecord Record(const std::string& run_id, const wire::ProcessIdentity& front,
                   const wire::ProcessIdentity& supervisor) {
    RunRecord record;
    record.run_id = run_id;
    record.directory = temporary_.string();
    record.front = front;
    record.supervisor = supervisor;
    record.grace_milliseconds = 60'000;
    return record;
  }
  RunRegistry::Entry Register(const RunRecord& record) {
    const auto path = registry_.Write(record);
    EXPECT_TRUE(path.ok()) << path.error().message;
    auto found = registry_.Find(record.run_id);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return *found;
  }
  StoppedRun Stop(const RunRegistry::Entry& entry, std::optional<base::Duration> timeout = std::nullopt) {
    StopOptions options;
    options.timeout = timeout;
    options.kill_timeout = kTimeout;
    options.log_line = [this](const std::string& sentence) { logged_.push_back(sentence); };
    return StopRuns(registry_, {entry}, options).at(0);
  }
  // A cgroup of this test, of whatever kind the machine has; empty if none can be created.
  std::string MakeCgroup(const std::string& hierarchy) {
    const std::string folder = hierarchy + "/fulldeck-test-" + std::to_string(getpid());
    if (mkdir(folder.c_str(), 0755) != 0) return "";
    if (access((folder + "/cgroup.procs").c_str(), F_OK) == 0) return folder;
    rmdir(folder.c_str());
    return "";
  }

  testing::TemporaryFolder temporary_;
  RunRegistry registry_{base::Environment{{wire::kRuntimeDirVariable, temporary_.string() + "/runtime"}}};
  std::vector<std::string> logged_;
};

TEST_F(StopRun, SignalsTheProxyWhichForwardsIt) {
  // The supervisor ignores SIGTERM unless it comes from its front.
  Sleeper supervisor(IgnoreTerm);
  const wire::ProcessIdentity target = supervisor.identity();
  Sleeper front([target] {
    static int pid = 0;
    pid = target.pid;
    signal(SIGTERM, [](int) {
      kill(pid, SIGKILL);
      _exit(0);
    });
  });
  const auto entry = Register(Record("run", front.identity(), supervisor.identity()));
  ASSERT_TRUE(entry.alive);
  const StoppedRun stopped = Stop(entry);
  EXPECT_TRUE(stopped.ok) << stopped.message;
  EXPECT_THAT(stopped.message, HasSubstr("stopped in"));
  ASSERT_THAT(logged_, SizeIs(1));
  EXPECT_EQ(logged_[0],
            "run run: asked process " + std::to_string(front.identity().pid) + " to stop; waiting for at most 65 s");
  EXPECT_THAT(registry_.List(), IsEmpty());
}

TEST_F(StopRun, SignalsTheSupervisorWhenTheProxyIsGone) {
  Sleeper supervisor;
  const auto entry = Register(Record("run", {supervisor.identity().pid, 7}, supervisor.identity()));
  EXPECT_TRUE(Stop(entry).ok);
  EXPECT_EQ(supervisor.EndedBy(), SIGTERM);
}

TEST_F(StopRun, KillsALauncherThatDoesNotEndAndItsRanks) {
  Sleeper front(IgnoreTerm);
  Sleeper supervisor(IgnoreTerm);
  Sleeper rank(IgnoreTerm);
  Sleeper bystander;
  RunRecord record = Record("run", front.identity(), supervisor.identity());
  const auto entry = Register(record);
  // The run was restarted since it was read: the ranks are different now, and the pid of an old one belongs to
  // another process.
  record.ranks = {{0, rank.identity()}, {1, {bystander.identity().pid, 7}}};
  Register(record);
  const StoppedRun stopped = Stop(entry, 200ms);
  EXPECT_TRUE(stopped.ok) << stopped.message;
  EXPECT_EQ(stopped.message, "did not end within 0.2 s and was killed; 1 process killed");
  EXPECT_FALSE(front.alive() || supervisor.alive() || rank.alive());
  EXPECT_TRUE(bystander.alive());
  EXPECT_THAT(registry_.List(), IsEmpty());
}

TEST_F(StopRun, CleansUpWhatADeadLauncherLeft) {
  Sleeper rank([] {
    IgnoreTerm();
    if (fork() == 0) {  // a grandchild in the rank's process group
      for (;;) pause();
    }
  });
  Sleeper other;
  RunRecord record = Record("dead", {other.identity().pid, 7}, {other.identity().pid, 7});
  record.ranks = {{0, rank.identity()}};
  record.cgroups = {"/tmp", temporary_.string(), "/no/such/folder", "relative"};
  const auto entry = Register(record);
  ASSERT_FALSE(entry.alive);
  EXPECT_THAT(FindOrphans(entry.record).processes, SizeIs(1));
  EXPECT_THAT(FindOrphans(entry.record).cgroups, IsEmpty()) << "none of these is a cgroup";
  const StoppedRun stopped = Stop(entry);
  EXPECT_TRUE(stopped.ok) << stopped.message;
  EXPECT_THAT(stopped.message, HasSubstr("left behind by a launcher that is gone"));
  EXPECT_THAT(stopped.message, HasSubstr("1 process killed"));
  EXPECT_FALSE(rank.alive());
  EXPECT_TRUE(other.alive());
  EXPECT_THAT(registry_.List(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(temporary_.path()));
}

TEST_F(StopRun, KillsNothingOfARunFromBeforeAReboot) {
  Sleeper bystander;
  RunRecord record = Record("old", bystander.identity(), bystander.identity());
  record.ranks = {{0, bystander.identity()}};
  record.pid_space = "another-boot/pid:[1]";
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  record.host = host;
  const auto entry = Register(record);
  EXPECT_FALSE(entry.alive);
  EXPECT_TRUE(FindOrphans(entry.record).empty());
  EXPECT_TRUE(CleanUp(registry_, entry, 1s).problems.empty());
  EXPECT_TRUE(bystander.alive());
  EXPECT_THAT(registry_.List(), IsEmpty());
}

TEST_F(StopRun, StopsSeveralAtTheSameTime) {
  Sleeper slow_one(IgnoreTerm);
  Sleeper slow_two(IgnoreTerm);
  Sleeper quick;
  std::vector<RunRegistry::Entry> entries;
  for (Sleeper* each : {&slow_one, &slow_two, &quick}) {
    entries.push_back(
        Register(Record("run-" + std::to_string(each->identity().pid), each->identity(), each->identity())));
  }
  StopOptions options;
  options.timeout = 1s;
  options.kill_timeout = kTimeout;
  const auto begin = std::chrono::steady_clock::now();
  const auto stopped = StopRuns(registry_, entries, options);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  ASSERT_THAT(stopped, SizeIs(3));
  for (const StoppedRun& each : stopped) EXPECT_TRUE(each.ok) << each.message;
  EXPECT_EQ(slow_one.EndedBy(), SIGKILL);
  EXPECT_EQ(slow_two.EndedBy(), SIGKILL);
  EXPECT_EQ(quick.EndedBy(), SIGTERM);
}

class StopRunInCgroup : public StopRun, public ::testing::WithParamInterface<const char*> {};

TEST_P(StopRunInCgroup, KillsWhatItsCgroupHoldsAndRemovesIt) {
  const std::string cgroup = MakeCgroup(GetParam());
  if (cgroup.empty()) GTEST_SKIP() << "no cgroup can be made below " << GetParam();
  ASSERT_EQ(mkdir((cgroup + "/inner").c_str(), 0755), 0);
  Sleeper daemon(IgnoreTerm);  // only the cgroup shows that it belongs to the run
  std::ofstream(cgroup + "/inner/cgroup.procs") << daemon.identity().pid << '\n' << std::flush;
  if (access((cgroup + "/freezer.state").c_str(), F_OK) == 0)
    std::ofstream(cgroup + "/freezer.state") << "FROZEN" << '\n' << std::flush;
  RunRecord record = Record("dead", {0, 0}, {0, 0});
  record.cgroups = {cgroup};
  const auto entry = Register(record);
  const RunOrphans orphans = FindOrphans(entry.record);
  ASSERT_THAT(orphans.processes, SizeIs(1));
  EXPECT_EQ(orphans.processes[0].pid, daemon.identity().pid);
  const StoppedRun stopped = Stop(entry);
  EXPECT_TRUE(stopped.ok) << stopped.message;
  EXPECT_THAT(stopped.message, HasSubstr("1 process killed; 1 cgroup removed"));
  EXPECT_EQ(daemon.EndedBy(), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(cgroup));
  EXPECT_THAT(registry_.List(), IsEmpty());
}

TEST_P(StopRunInCgroup, DoesNotKillTheCaller) {
  const std::string cgroup = MakeCgroup(GetParam());
  if (cgroup.empty()) GTEST_SKIP() << "no cgroup can be made below " << GetParam();
  RunRecord record = Record("dead", {0, 0}, {0, 0});
  record.cgroups = {cgroup};
  const auto entry = Register(record);
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(cgroup + "/cgroup.procs") << getpid() << '\n' << std::flush;
    const CleanUpReport report = CleanUp(registry_, entry, 100ms);
    const bool reported = !report.problems.empty() && report.problems[0].find("leave it first") != std::string::npos;
    _exit(reported ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(registry_.List(), SizeIs(1)) << "the entry stays while something remains";
  EXPECT_TRUE(CleanUp(registry_, entry, kTimeout).problems.empty());
  EXPECT_FALSE(std::filesystem::exists(cgroup));
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, StopRunInCgroup,
                         ::testing::Values("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer",
                                           "/sys/fs/cgroup/pids"));

device::Inventory Cards(const std::vector<std::pair<std::string, int>>& names) {
  device::Inventory inventory;
  inventory.vendors.emplace_back();
  for (const auto& [kind, index] : names) {
    device::Card card;
    card.kind = kind;
    card.index = index;
    inventory.vendors.back().cards.push_back(card);
  }
  return inventory;
}

TEST(CardHolders, FindACardByItsName) {
  const device::Inventory inventory = Cards({{"gcu", 0}, {"gcu", 3}, {"npu", 3}, {"npu", 12}});
  for (const char* text : {"gcu:3", "gcu 3", "gcu3", " gcu: 3 "}) {
    const auto card = FindCard(inventory, text);
    ASSERT_TRUE(card.ok()) << text << ": " << card.error().message;
    EXPECT_EQ(device::NameOf(**card), "gcu 3");
  }
  EXPECT_EQ(device::NameOf(**FindCard(inventory, "12")), "npu 12");
  EXPECT_EQ(FindCard(inventory, "3").error().message,
            "several cards have the number 3; name the kind too. Cards: gcu 0, gcu 3, npu 3, npu 12.");
  for (const char* text : {"", "gcu", "gcu:7", "cuda:0", "gcu:3x", "gcu:-3", "3 3", "gcu:99999999999", "\x1b[2J"}) {
    EXPECT_THAT(FindCard(inventory, text).error().message, HasSubstr("there is no card '")) << text;
  }
  EXPECT_EQ(FindCard({}, "gcu:0").error().message, "there is no card 'gcu:0'. No accelerator was found.");
}

TEST(CardHolders, AreNamedWithTheirRun) {
  Sleeper rank;
  Sleeper unrelated;
  device::Card card;
  card.kind = "gcu";
  EXPECT_THAT(HoldersOf(card, {}).error().message, HasSubstr("who holds gcu 0 cannot be told"));
  card.telemetry.holders = {{rank.identity().pid}, {unrelated.identity().pid}, {getpid()}, {1 << 30}};
  RunRegistry::Entry run;
  run.record.run_id = "mine";
  run.record.ranks = {{0, rank.identity()}, {1, {unrelated.identity().pid, 7}}};
  const auto holders = HoldersOf(card, {run});
  ASSERT_TRUE(holders.ok());
  ASSERT_THAT(*holders, SizeIs(3)) << "the last one is no process";
  EXPECT_EQ(holders->at(0).run_id, "mine");
  EXPECT_FALSE(holders->at(1).run_id);
  EXPECT_FALSE(holders->at(1).is_caller);
  EXPECT_TRUE(holders->at(2).is_caller);
  EXPECT_EQ(holders->at(1).process.start_ticks, unrelated.identity().start_ticks);
}

TEST(CardHolders, OfAContainerAreCertainOnlyWithTheNodeOpen) {
  testing::TemporaryFolder temporary;
  temporary.Write("node", "");
  const std::string node = temporary.string() + "/node";
  Sleeper user([&] { EXPECT_GE(open(node.c_str(), O_RDONLY), 0); });
  Sleeper unrelated;
  device::Card card;
  card.kind = "cuda";
  card.nodes = {node};
  card.telemetry.holders = {{user.identity().pid}, {unrelated.identity().pid}};
  const auto in_container = HoldersOf(card, {}, false);
  ASSERT_TRUE(in_container.ok());
  ASSERT_THAT(*in_container, SizeIs(2));
  EXPECT_TRUE(in_container->at(0).certain);
  EXPECT_FALSE(in_container->at(1).certain) << "the driver may mean another process";
  EXPECT_TRUE(HoldersOf(card, {}, true)->at(1).certain);
}

}  // namespace
}  // namespace fulldeck::job
