#include "job/card_leases.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "temporary_folder.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

using ::testing::HasSubstr;

constexpr int kPatienceMilliseconds = 60'000;

device::Card Card(int index, const std::string& serial) {
  device::Card card;
  card.kind = "gcu";
  card.index = index;
  if (!serial.empty()) card.serial = serial;
  return card;
}

// A process that runs `work` with the write end of a pipe, and then waits to be killed.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(int)>& work) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      work(ends[1]);
      close(ends[1]);
      for (;;) pause();
    }
    close(ends[1]);
    from_.Reset(ends[0]);
  }
  ~OtherProcess() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  int pid() const { return pid_; }
  // Everything that it said until it closed its end.
  std::string Said() {
    std::string text;
    char bytes[256];
    for (;;) {
      pollfd ready{from_.get(), POLLIN, 0};
      if (poll(&ready, 1, kPatienceMilliseconds) != 1) return "nothing in time";
      const ssize_t got = read(from_.get(), bytes, sizeof bytes);
      if (got <= 0) return text;
      text.append(bytes, static_cast<std::size_t>(got));
    }
  }

 private:
  pid_t pid_ = 0;
  base::UniqueFd from_;
};

void Tell(int fd, const std::string& text) {
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
}

class CardLeasesTest : public ::testing::Test {
 protected:
  bool Take(CardLeases& leases, const device::Card& card, const std::string& run = "mine") {
    const auto taken = leases.Take(card, {run, "alice", getpid()}, environment_, &held_by_);
    EXPECT_TRUE(taken.ok()) << taken.error().message;
    return taken.ok() && *taken;
  }
  std::string ErrorOf(const device::Card& card) {
    CardLeases leases;
    const auto taken = leases.Take(card, {"mine", "alice", getpid()}, environment_, &held_by_);
    return taken.ok() ? "" : taken.error().message;
  }
  std::size_t Files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }

  testing::TemporaryFolder temporary_;
  std::string folder_ = temporary_.string() + "/leases";
  base::Environment environment_{{wire::kLeaseDirVariable, folder_}};
  std::optional<LeaseOwner> held_by_;
};

TEST_F(CardLeasesTest, AreRefusedToASecondRunWhichIsToldWhoHasThem) {
  CardLeases first;
  ASSERT_TRUE(Take(first, Card(3, "A1"), "run-1"));
  EXPECT_EQ(first.held().at(0).card, "gcu 3");
  CardLeases second;
  EXPECT_FALSE(Take(second, Card(3, "A1"), "run-2"));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->run_id, "run-1");
  EXPECT_EQ(held_by_->user, "alice");
  EXPECT_EQ(held_by_->pid, getpid());
  EXPECT_TRUE(Take(second, Card(4, "A2"))) << "another card is free";
  EXPECT_FALSE(held_by_);
}

TEST_F(CardLeasesTest, EndWithTheObjectAndLeaveNoFile) {
  {
    CardLeases leases;
    ASSERT_TRUE(Take(leases, Card(0, "A1")));
    EXPECT_EQ(Files(), 1U);
  }
  EXPECT_EQ(Files(), 0U);
  CardLeases next;
  EXPECT_TRUE(Take(next, Card(0, "A1")));
  next.GiveBack("gcu 0");
  next.GiveBack("gcu 7");
  EXPECT_TRUE(next.held().empty());
  EXPECT_EQ(Files(), 0U);
}

TEST_F(CardLeasesTest, FollowTheSerialAndNotTheNumberOfTheCard) {
  CardLeases first;
  CardLeases second;
  ASSERT_TRUE(Take(first, Card(0, "A1")));
  EXPECT_FALSE(Take(second, Card(5, "A1")));
  EXPECT_TRUE(Take(second, Card(0, "A2")));
}

TEST_F(CardLeasesTest, AreNamedForWhatTheCardTells) {
  device::Card card = Card(2, "");
  CardLeases leases;
  ASSERT_TRUE(Take(leases, card));
  card.pci_address = "0000:3b:00.0";
  ASSERT_TRUE(Take(leases, card));
  card.uuid = "GPU-12ab";
  ASSERT_TRUE(Take(leases, card));
  card.serial = "../../evil/\n\x1b" + std::string(500, 'x');
  ASSERT_TRUE(Take(leases, card));
  EXPECT_EQ(leases.held().at(0).path, folder_ + "/gcu-index-2.lock");
  EXPECT_EQ(leases.held().at(1).path, folder_ + "/gcu-0000_3b_00.0.lock");
  EXPECT_EQ(leases.held().at(2).path, folder_ + "/gcu-GPU-12ab.lock");
  const std::string strange = leases.held().at(3).path;
  EXPECT_EQ(strange.rfind('/'), folder_.size());
  EXPECT_LT(strange.size(), folder_.size() + 200);
  EXPECT_EQ(Files(), 4U);
}

TEST_F(CardLeasesTest, CanBeTakenByEveryUserWhateverTheUmask) {
  const mode_t before = umask(077);
  CardLeases leases;
  const bool taken = Take(leases, Card(0, "A1"));
  umask(before);
  ASSERT_TRUE(taken);
  struct stat status {};
  ASSERT_EQ(stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777U);
  ASSERT_EQ(fstat(leases.held().at(0).lock.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0666U);
  EXPECT_NE(fcntl(leases.held().at(0).lock.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(CardLeasesTest, AreFreedByTheKernelWhenTheHolderIsKilled) {
  OtherProcess holder([this](int fd) {
    static CardLeases leases;
    Tell(fd, Take(leases, Card(0, "A1"), "other") ? "taken" : "refused");
  });
  ASSERT_EQ(holder.Said(), "taken");
  CardLeases leases;
  EXPECT_FALSE(Take(leases, Card(0, "A1")));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->run_id, "other");
  EXPECT_EQ(held_by_->pid, holder.pid());
  holder.Kill();
  EXPECT_TRUE(Take(leases, Card(0, "A1"))) << "the file that it left is taken over";
  CardLeases third;
  EXPECT_FALSE(Take(third, Card(0, "A1")));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->run_id, "mine") << "the line is the new owner's";
}

TEST_F(CardLeasesTest, OfRacingRunsGoToOneOfThemEach) {
  constexpr int kRuns = 6;
  constexpr int kCards = 8;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::unique_ptr<OtherProcess>> runs;
    for (int run = 0; run < kRuns; ++run) {
      runs.push_back(std::make_unique<OtherProcess>([this, run](int fd) {
        static CardLeases leases;
        for (int i = 0; i < kCards; ++i) {  // in different orders, as a deadlock would need
          const int card = run % 2 == 0 ? i : kCards - 1 - i;
          // Takes and gives back on the way, so that files come and go under the others' hands.
          for (int again = 0; again < 20; ++again) {
            if (!Take(leases, Card(card, "S" + std::to_string(card)))) continue;
            if (again < 19) leases.GiveBack("gcu " + std::to_string(card));
          }
        }
        for (const Lease& lease : leases.held()) Tell(fd, lease.card.substr(4));
      }));
    }
    std::string taken;
    for (const auto& run : runs) taken += run->Said();
    std::sort(taken.begin(), taken.end());
    EXPECT_EQ(std::unique(taken.begin(), taken.end()), taken.end()) << "a card was won twice: " << taken;
    EXPECT_THAT(taken, ::testing::MatchesRegex("[0-7]*"));
    // Whatever came of the race, the cards that nobody has are free and the others are not.
    CardLeases rest;
    for (int card = 0; card < kCards; ++card) {
      const bool is_free = taken.find(std::to_string(card)) == std::string::npos;
      EXPECT_EQ(Take(rest, Card(card, "S" + std::to_string(card))), is_free) << card;
    }
  }
}

TEST_F(CardLeasesTest, AreNotGivenBackByAForkedCopy) {
  CardLeases leases;
  ASSERT_TRUE(Take(leases, Card(0, "A1")));
  const pid_t child = fork();
  if (child == 0) {
    leases.~CardLeases();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Files(), 1U);
  CardLeases second;
  EXPECT_FALSE(Take(second, Card(0, "A1")));
}

TEST_F(CardLeasesTest, RefuseWhatOthersPlanted) {
  std::filesystem::create_directory(folder_);
  const std::string victim = temporary_.string() + "/victim";
  temporary_.Write("victim", "precious");
  std::filesystem::create_symlink(victim, folder_ + "/gcu-LINK.lock");
  std::filesystem::create_hard_link(victim, folder_ + "/gcu-HARD.lock");
  std::filesystem::create_directory(folder_ + "/gcu-FOLDER.lock");
  ASSERT_EQ(mkfifo((folder_ + "/gcu-FIFO.lock").c_str(), 0666), 0);
  EXPECT_THAT(ErrorOf(Card(0, "LINK")), HasSubstr("gcu-LINK.lock is a symbolic link"));
  EXPECT_THAT(ErrorOf(Card(0, "HARD")), HasSubstr("gcu-HARD.lock is another name of a file elsewhere"));
  EXPECT_THAT(ErrorOf(Card(0, "FOLDER")), HasSubstr("gcu-FOLDER.lock is a folder"));
  EXPECT_THAT(ErrorOf(Card(0, "FIFO")), HasSubstr("gcu-FIFO.lock is no plain file"));
  EXPECT_EQ(std::filesystem::file_size(victim), 8U) << "nothing was written through it";
}

TEST_F(CardLeasesTest, RefuseAFolderThatIsNoneOrThatAnybodyCanEmpty) {
  temporary_.Write("leases", "a file");
  EXPECT_THAT(ErrorOf(Card(0, "A1")), HasSubstr("is not a folder"));
  std::filesystem::remove(folder_);
  std::filesystem::create_directory_symlink(temporary_.string(), folder_);
  EXPECT_THAT(ErrorOf(Card(0, "A1")), HasSubstr("is not a folder"));
  std::filesystem::remove(folder_);
  std::filesystem::create_directory(folder_);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(ErrorOf(Card(0, "A1")), HasSubstr("chmod 1777"));
  std::filesystem::remove(folder_);
  environment_ = {{wire::kLeaseDirVariable, temporary_.string() + "/no/such"}};
  EXPECT_THAT(ErrorOf(Card(0, "A1")), HasSubstr("cannot make"));
}

TEST_F(CardLeasesTest, WithAnOwnerLineThatCannotBeReadAreHeldBySomebody) {
  std::filesystem::create_directory(folder_);
  for (const std::string& line :
       {std::string(), std::string("no newline\talice\t12"), std::string("run\talice\t-4\n"),
        std::string("run\talice\tx\n"), std::string("\talice\t12\n"), std::string("run\t12\n"),
        std::string(100'000, 'x'), std::string("run\n\talice\t12\n")}) {
    temporary_.Write("leases/gcu-A1.lock", line);
    base::UniqueFd lock(open((folder_ + "/gcu-A1.lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    CardLeases leases;
    EXPECT_FALSE(Take(leases, Card(0, "A1")));
    EXPECT_FALSE(held_by_) << line;
  }
}

TEST_F(CardLeasesTest, ShowALineThatCannotSteerATerminal) {
  std::filesystem::create_directory(folder_);
  temporary_.Write("leases/gcu-A1.lock",
                   "run\x1b[2J\tali\x07"
                   "ce\t12\n");
  base::UniqueFd lock(open((folder_ + "/gcu-A1.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  CardLeases leases;
  EXPECT_FALSE(Take(leases, Card(0, "A1")));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->run_id, "run?[2J");
  EXPECT_EQ(held_by_->user, "ali?ce");
}

TEST_F(CardLeasesTest, OfSimulatedCardsBelongToTheirSimulatedServer) {
  const std::string state = temporary_.string() + "/state";
  const base::Environment eight{{wire::kSimulateVariable, "gcu:8,idle=3"}, {wire::kSimulateDirVariable, state}};
  const base::Environment same{{wire::kSimulateVariable, "gcu:8"}, {wire::kSimulateDirVariable, state}};
  const base::Environment four{{wire::kSimulateVariable, "gcu:4"}, {wire::kSimulateDirVariable, state}};
  const base::Environment elsewhere{{wire::kSimulateVariable, "gcu:8"},
                                    {wire::kSimulateDirVariable, temporary_.string() + "/other"}};
  device::Card card = Card(0, "SIM-gcu-0000");
  card.simulated = true;
  CardLeases leases;
  const auto take = [&](const base::Environment& environment) {
    const auto taken = leases.Take(card, {"run", "alice", getpid()}, environment, nullptr);
    EXPECT_TRUE(taken.ok()) << taken.error().message;
    return *taken;
  };
  EXPECT_TRUE(take(eight));
  EXPECT_FALSE(take(same));
  EXPECT_TRUE(take(four));
  EXPECT_TRUE(take(elsewhere));
  EXPECT_EQ(leases.held().at(0).path, state + "/simulated-gcu-8.leases/gcu-SIM-gcu-0000.lock");
}

TEST_F(CardLeasesTest, OfRealCardsAreKeptInOneFolderOfTheMachine) {
  EXPECT_EQ(CardLeases::FolderFor(Card(0, "A1"), {}), "/tmp/fulldeck-leases");
  EXPECT_EQ(CardLeases::FolderFor(Card(0, "A1"), environment_), folder_);
  EXPECT_EQ(CardLeases::FolderFor(Card(0, "A1"), {{wire::kLeaseDirVariable, folder_ + "//"}}), folder_);
}

// Runs as root alone: only root can become another user.
TEST_F(CardLeasesTest, AreSharedBetweenUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to act as two users";
  ASSERT_EQ(chmod(temporary_.string().c_str(), 0777), 0);
  const auto as_user = [this](uid_t uid, const device::Card& card) {
    return std::make_unique<OtherProcess>([this, uid, card](int fd) {
      static CardLeases leases;
      if (setgid(uid) != 0 || setuid(uid) != 0) return Tell(fd, "no such user");
      umask(077);
      const auto taken = leases.Take(card, {"of-" + std::to_string(uid), "user", getpid()}, environment_, &held_by_);
      if (!taken) return Tell(fd, taken.error().message);
      Tell(fd, *taken ? "taken" : "held by " + (held_by_ ? held_by_->run_id : "?"));
    });
  };
  const auto first = as_user(12345, Card(0, "A1"));
  ASSERT_EQ(first->Said(), "taken");
  EXPECT_EQ(as_user(23456, Card(0, "A1"))->Said(), "held by of-12345");
  first->Kill();
  const auto second = as_user(23456, Card(0, "A1"));
  EXPECT_EQ(second->Said(), "taken") << "the other user's file is taken over";
  EXPECT_EQ(as_user(12345, Card(0, "A1"))->Said(), "held by of-23456");
}

}  // namespace
}  // namespace fulldeck::job
