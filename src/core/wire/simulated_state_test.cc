#include "wire/simulated_state.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "fulldeck/simulated_card.h"
#include "temporary_folder.h"
#include "wire/process_identity.h"
#include "wire/variables.h"

namespace fulldeck::wire {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class SimulatedState : public ::testing::Test {
 protected:
  SimulatedState() {
    setenv(kSimulateDirVariable, folder_.c_str(), 1);
    setenv(kSimulateVariable, "gcu:8,memory=1000,dropped=7", 1);
  }
  ~SimulatedState() override {
    unsetenv(kSimulateDirVariable);
    unsetenv(kSimulateVariable);
  }
  std::unique_ptr<SimulatedServer> Open() {
    auto server = SimulatedServer::OpenToUse(path_);
    EXPECT_TRUE(server.ok()) << server.error().message;
    return std::move(*server);
  }
  testing::TemporaryFolder temporary_;
  std::string folder_ = temporary_.string();
  std::string path_ = folder_ + "/simulated-gcu-8.state";
};

TEST_F(SimulatedState, ShowsAWatcherWhatAUserOfTheCardDoes) {
  const auto user = Open();
  const auto watcher = Open();
  SimulatedSlot* slot = user->TakeSlot(3);
  ASSERT_NE(slot, nullptr);
  EXPECT_TRUE(user->Hold(3, *slot, 700, 1000));
  base::ManualClock clock;
  clock.Advance(10s);
  for (int i = 0; i < 100; ++i) {  // ten milliseconds of work, ten of rest
    const base::TimePoint begin = clock.Now();
    SimulatedServer::Begin(*slot, begin);
    clock.Advance(10ms);
    SimulatedServer::End(*slot, begin, clock.Now());
    clock.Advance(10ms);
  }
  const SimulatedUse use = watcher->Use(3, clock.Now());
  EXPECT_NEAR(use.utilization_percent, 50, 4);
  EXPECT_EQ(use.bytes_held, 700U);
  ASSERT_EQ(use.users.size(), 1U);
  EXPECT_EQ(use.users[0].pid, getpid());
  EXPECT_EQ(watcher->Use(2, clock.Now()).utilization_percent, 0);

  clock.Advance(2s);
  EXPECT_EQ(watcher->Use(3, clock.Now()).utilization_percent, 0) << "old work no longer counts";
}

TEST_F(SimulatedState, KeepsTheBusyTimeOfAProcessThatClosedTheCardOrEnded) {
  const auto server = Open();
  const pid_t child = fork();
  if (child == 0) {
    SimulatedSlot* slot = server->TakeSlot(0);
    SimulatedServer::End(*slot, base::TimePoint(1s), base::TimePoint(3s));
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  SimulatedSlot* slot = server->TakeSlot(0);
  SimulatedServer::End(*slot, base::TimePoint(1s), base::TimePoint(2s));
  SimulatedServer::GiveBack(*slot);
  const SimulatedUse use = server->Use(0, base::TimePoint(100s));
  EXPECT_EQ(use.users.size(), 0U);
  ASSERT_EQ(use.work.size(), 2U) << "a slot that was never used goes first";
  EXPECT_EQ(use.work[0].pid, child);
  EXPECT_EQ(use.work[0].busy_ns, 2'000'000'000U);
  EXPECT_EQ(use.work[1].pid, 0);
  EXPECT_EQ(use.work[1].start_ticks, ThisProcess().start_ticks);
  EXPECT_EQ(use.work[1].busy_ns, 1'000'000'000U);
}

TEST_F(SimulatedState, CountsAnOperationThatIsStillRunning) {
  const auto server = Open();
  SimulatedSlot* slot = server->TakeSlot(0);
  base::ManualClock clock;
  clock.Advance(10s);
  SimulatedServer::Begin(*slot, clock.Now());
  clock.Advance(5s);
  EXPECT_NEAR(server->Use(0, clock.Now()).utilization_percent, 100, 0.1);
}

TEST_F(SimulatedState, SpreadsALongOperationOverTheWindow) {
  const auto server = Open();
  SimulatedSlot* slot = server->TakeSlot(0);
  base::ManualClock clock;
  clock.Advance(10s);
  const base::TimePoint begin = clock.Now();
  clock.Advance(60s);
  SimulatedServer::End(*slot, begin, clock.Now());
  EXPECT_NEAR(server->Use(0, clock.Now()).utilization_percent, 100, 0.1);
}

TEST_F(SimulatedState, RefusesMemoryBeyondTheCardAndTakesItAgainAfterRelease) {
  const auto server = Open();
  SimulatedSlot* one = server->TakeSlot(0);
  SimulatedSlot* two = server->TakeSlot(0);
  ASSERT_NE(one, two);
  EXPECT_TRUE(server->Hold(0, *one, 600, 1000));
  EXPECT_FALSE(server->Hold(0, *two, 401, 1000));
  EXPECT_FALSE(server->Hold(0, *two, ~std::uint64_t{0}, 1000)) << "a size that overflows the sum";
  EXPECT_TRUE(server->Hold(0, *two, 400, 1000));
  SimulatedServer::Release(*one, 600);
  EXPECT_TRUE(server->Hold(0, *two, 600, 1000));
  EXPECT_EQ(two->bytes_peak.load(), 1000U);
}

TEST_F(SimulatedState, ForgetsWhatADeadProcessHeld) {
  const auto server = Open();
  const pid_t child = fork();
  if (child == 0) {
    SimulatedSlot* slot = server->TakeSlot(0);
    _exit(slot != nullptr && server->Hold(0, *slot, 900, 1000) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(server->Use(0, base::SteadyClock::Instance().Now()).bytes_held, 0U);
  SimulatedSlot* slot = server->TakeSlot(0);
  EXPECT_EQ(slot, &*slot);
  EXPECT_TRUE(server->Hold(0, *slot, 1000, 1000));
}

TEST_F(SimulatedState, ReusesTheSlotsOfTheDeadSoThatACardNeverRunsOut) {
  const auto server = Open();
  for (int i = 0; i < 2 * kSimulatedSlots; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(server->TakeSlot(0) != nullptr ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 0) << "process " << i;
  }
}

TEST_F(SimulatedState, GivesEveryThreadASlotOfItsOwnAndSaysWhenAllAreTaken) {
  const auto server = Open();
  std::array<SimulatedSlot*, kSimulatedSlots> slots{};
  std::vector<std::thread> threads;
  for (auto& slot : slots) threads.emplace_back([&slot, &server] { slot = server->TakeSlot(1); });
  for (std::thread& thread : threads) thread.join();
  std::sort(slots.begin(), slots.end());
  EXPECT_EQ(std::adjacent_find(slots.begin(), slots.end()), slots.end());
  EXPECT_NE(slots.front(), nullptr);
  EXPECT_EQ(server->TakeSlot(1), nullptr);
  SimulatedServer::GiveBack(*slots.front());
  EXPECT_EQ(server->TakeSlot(1), slots.front());
}

TEST_F(SimulatedState, RefusesAFileOfAnotherVersionOrLength) {
  Open();
  const int file = open(path_.c_str(), O_RDWR);
  const std::uint32_t version = 99;
  ASSERT_EQ(pwrite(file, &version, sizeof version, 8), 4);
  close(file);
  auto server = SimulatedServer::OpenToUse(path_);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.error().message, HasSubstr("has version 99, this fulldeck speaks version 1"));

  ASSERT_EQ(truncate(path_.c_str(), 100), 0);
  server = SimulatedServer::OpenToUse(path_);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.error().message, HasSubstr("has 100 bytes"));
}

TEST_F(SimulatedState, RefusesAPlantedLinkAndAFolderThatOthersCanWriteTo) {
  temporary_.Write("target", "precious");
  ASSERT_EQ(symlink((folder_ + "/target").c_str(), path_.c_str()), 0);
  EXPECT_FALSE(SimulatedServer::OpenToUse(path_).ok());

  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  const auto server = SimulatedServer::OpenToUse(path_);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.error().message, HasSubstr(kSimulateDirVariable));
}

TEST_F(SimulatedState, WatchingMakesNoFile) {
  const auto server = SimulatedServer::OpenToWatch(path_);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(*server, nullptr);
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(SimulatedState, CanBeUsedFromCWithTheLimitsAndFaultsOfTheSpec) {
  fulldeck_simulated_card* card = nullptr;
  ASSERT_EQ(fulldeck_simulated_card_open(2, &card), 0) << fulldeck_simulated_card_error();
  EXPECT_EQ(fulldeck_simulated_card_memory(card), 1000U);
  EXPECT_EQ(fulldeck_simulated_card_hold(card, 1000), 0);
  EXPECT_EQ(fulldeck_simulated_card_hold(card, 1), -ENOMEM);
  const uint64_t begun = fulldeck_simulated_card_begin(card);
  fulldeck_simulated_card_end(card, begun);

  EXPECT_EQ(fulldeck_simulated_card_faults(card), 0U);
  fulldeck_simulated_card_set_faults(card, FULLDECK_SIMULATED_SLOW | FULLDECK_SIMULATED_DROPPED, 2.5);
  EXPECT_EQ(fulldeck_simulated_card_slow_factor(card), 2.5);
  fulldeck_simulated_card_release(card, 1000);
  EXPECT_EQ(fulldeck_simulated_card_hold(card, 1), -ENODEV);
  fulldeck_simulated_card_set_faults(card, 0, 1);
  EXPECT_EQ(fulldeck_simulated_card_hold(card, 1), 0);
  fulldeck_simulated_card_close(card);
  fulldeck_simulated_card_close(nullptr);
}

TEST_F(SimulatedState, ReportsToACProgramWhyACardCannotBeOpened) {
  fulldeck_simulated_card* card = nullptr;
  EXPECT_EQ(fulldeck_simulated_card_open(8, &card), -ENODEV);
  EXPECT_THAT(fulldeck_simulated_card_error(), HasSubstr("no simulated card 8"));
  EXPECT_EQ(fulldeck_simulated_card_open(7, &card), -ENODEV);
  EXPECT_THAT(fulldeck_simulated_card_error(), HasSubstr("dropped off the bus"));
  setenv(kSimulateVariable, "gcu:x", 1);
  EXPECT_EQ(fulldeck_simulated_card_open(0, &card), -EINVAL);
  EXPECT_THAT(fulldeck_simulated_card_error(), HasSubstr("Right forms"));
  unsetenv(kSimulateVariable);
  EXPECT_EQ(fulldeck_simulated_card_open(0, &card), -ENODEV);
  EXPECT_EQ(card, nullptr);
}

TEST(ProcessIdentity, IsNotFooledByAReusedPidOrAZombie) {
  const ProcessIdentity self = ThisProcess();
  EXPECT_GT(self.start_ticks, 0U);
  EXPECT_TRUE(IsAlive(self));
  EXPECT_FALSE(IsAlive({self.pid, self.start_ticks + 1}));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(IsAlive({child, 0})) << "a zombie";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(IdentityOf(child));
}

}  // namespace
}  // namespace fulldeck::wire
