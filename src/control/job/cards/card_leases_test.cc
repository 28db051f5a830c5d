#include "job/cards/card_leases.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pwd.h>
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
using ::testing::StartsWith;

constexpr int kTimeoutMilliseconds = 60'000;

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
  // Everything that it wrote until it closed its end.
  std::string Output() {
    std::string text;
    char bytes[256];
    for (;;) {
      pollfd ready{from_.get(), POLLIN, 0};
      if (poll(&ready, 1, kTimeoutMilliseconds) != 1) return "nothing in time";
      const ssize_t got = read(from_.get(), bytes, sizeof bytes);
      if (got <= 0) return text;
      text.append(bytes, static_cast<std::size_t>(got));
    }
  }

 private:
  pid_t pid_ = 0;
  base::UniqueFd from_;
};

std::string NameOfUser(uid_t uid) {
  const passwd* const entry = getpwuid(uid);
  return entry != nullptr ? entry->pw_name : std::to_string(uid);
}

// As another run would hold it: a separate, locked file.
base::UniqueFd LockedFile(const std::string& path, const std::string& line, mode_t mode = 0644) {
  base::UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  EXPECT_EQ(write(file.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  EXPECT_EQ(fcntl(file.get(), F_OFD_SETLK, &whole), 0);
  EXPECT_EQ(fchmod(file.get(), mode), 0);
  return file;
}

void Send(int fd, const std::string& text) {
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
  void MakeFolderOfRoot() {
    std::filesystem::create_directory(folder_);
    ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  }
  // Takes the lease as that user and keeps it; reports "taken", or the holder, or the error.
  std::unique_ptr<OtherProcess> AsUser(uid_t uid, const device::Card& card) {
    return std::make_unique<OtherProcess>([this, uid, card](int fd) {
      static CardLeases leases;
      if (setgid(uid) != 0 || setuid(uid) != 0) return Send(fd, "no such user");
      umask(077);
      const auto taken = leases.Take(card, {"of-" + std::to_string(uid), "user", getpid()}, environment_, &held_by_);
      if (!taken) return Send(fd, taken.error().message);
      Send(fd, *taken ? "taken" : held_by_ ? held_by_->run_id + " of user " + held_by_->user : "?");
    });
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

TEST_F(CardLeasesTest, AreRefusedToASecondRunWithTheNameOfTheHolder) {
  CardLeases first;
  ASSERT_TRUE(Take(first, Card(3, "A1"), "run-1"));
  EXPECT_EQ(first.held().at(0).card, "gcu 3");
  CardLeases second;
  EXPECT_FALSE(Take(second, Card(3, "A1"), "run-2"));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->run_id, "run-1");
  EXPECT_EQ(held_by_->user, NameOfUser(geteuid())) << "by the file's owner, not by what stands in it";
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

TEST_F(CardLeasesTest, AreNamedForWhatTheCardReports) {
  device::Card card = Card(2, "");
  CardLeases leases;
  ASSERT_TRUE(Take(leases, card));
  card.pci_address = "0000:3b:00.0";
  ASSERT_TRUE(Take(leases, card));
  card.uuid = "GPU-12ab";
  ASSERT_TRUE(Take(leases, card));
  card.serial = "../../evil/\n\x1b" + std::string(500, 'x');
  ASSERT_TRUE(Take(leases, card));
  EXPECT_THAT(leases.held().at(0).path, StartsWith(folder_ + "/fulldeck-lease-gcu-index-2."));
  EXPECT_THAT(leases.held().at(1).path, StartsWith(folder_ + "/fulldeck-lease-gcu-0000_3b_00.0."));
  EXPECT_THAT(leases.held().at(2).path, StartsWith(folder_ + "/fulldeck-lease-gcu-GPU-12ab."));
  const std::string strange = leases.held().at(3).path;
  EXPECT_EQ(strange.rfind('/'), folder_.size());
  EXPECT_LT(strange.size(), folder_.size() + 200);
  EXPECT_EQ(Files(), 4U);
}

TEST_F(CardLeasesTest, CanBeSeenButNotChangedByEveryUserWhateverTheUmask) {
  const mode_t before = umask(077);
  CardLeases leases;
  const bool taken = Take(leases, Card(0, "A1"));
  umask(before);
  ASSERT_TRUE(taken);
  struct stat status {};
  ASSERT_EQ(stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777U);
  ASSERT_EQ(fstat(leases.held().at(0).lock.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644U);
  EXPECT_NE(fcntl(leases.held().at(0).lock.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(CardLeasesTest, AreFreedByTheKernelWhenTheHolderIsKilled) {
  OtherProcess holder([this](int fd) {
    static CardLeases leases;
    Send(fd, Take(leases, Card(0, "A1"), "other") ? "taken" : "refused");
  });
  ASSERT_EQ(holder.Output(), "taken");
  CardLeases leases;
  EXPECT_FALSE(Take(leases, Card(0, "A1")));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->run_id, "other");
  EXPECT_EQ(held_by_->pid, holder.pid());
  holder.Kill();
  EXPECT_TRUE(Take(leases, Card(0, "A1"))) << "the file that it left is removed";
  EXPECT_EQ(Files(), 1U);
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
        for (int i = 0; i < kCards; ++i) {  // in different orders, to provoke a deadlock
          const int card = run % 2 == 0 ? i : kCards - 1 - i;
          // Takes and gives back repeatedly, so that files appear and vanish while others look.
          for (int again = 0; again < 20; ++again) {
            if (!Take(leases, Card(card, "S" + std::to_string(card)))) continue;
            if (again < 19) leases.GiveBack("gcu " + std::to_string(card));
          }
        }
        for (const Lease& lease : leases.held()) Send(fd, lease.card.substr(4));
      }));
    }
    std::string taken;
    for (const auto& run : runs) taken += run->Output();
    std::sort(taken.begin(), taken.end());
    EXPECT_EQ(std::unique(taken.begin(), taken.end()), taken.end()) << "a card was won twice: " << taken;
    EXPECT_THAT(taken, ::testing::MatchesRegex("[0-7]*"));
    // Whatever the outcome of the race, exactly the cards that are not held are free.
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

TEST_F(CardLeasesTest, PassOverWhatOthersPlanted) {
  std::filesystem::create_directory(folder_);
  const std::string victim = temporary_.string() + "/victim";
  temporary_.Write("victim", "precious");
  const auto planted = [this](const std::string& card) {
    return folder_ + "/fulldeck-lease-gcu-" + card + ".0123456789abcdef.lock";
  };
  std::filesystem::create_symlink(victim, planted("LINK"));
  std::filesystem::create_hard_link(victim, planted("HARD"));
  std::filesystem::create_directory(planted("FOLDER"));
  ASSERT_EQ(mkfifo(planted("FIFO").c_str(), 0666), 0);
  // A file that everyone could lock proves nothing.
  const base::UniqueFd open_to_all = LockedFile(planted("OPEN"), "run\talice\t12\n", 0666);
  // A different kind of lock, which everyone with read access can take: it must not exclude other runs.
  temporary_.Write("leases/fulldeck-lease-gcu-FLOCK.0123456789abcdef.lock", "run\talice\t12\n");
  const base::UniqueFd flocked(open(planted("FLOCK").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(flocked.get(), LOCK_EX | LOCK_NB), 0);
  CardLeases leases;
  for (const char* card : {"LINK", "HARD", "FOLDER", "FIFO", "OPEN", "FLOCK"}) {
    EXPECT_TRUE(Take(leases, Card(0, card))) << card;
  }
  EXPECT_EQ(std::filesystem::file_size(victim), 8U) << "nothing was written through it";
}

TEST_F(CardLeasesTest, OfACardWhoseSerialBeginsLikeAnothersAreItsOwn) {
  CardLeases first;
  CardLeases second;
  ASSERT_TRUE(Take(first, Card(0, "A1.b")));
  EXPECT_TRUE(Take(second, Card(1, "A1")));
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

TEST_F(CardLeasesTest, WithAnOwnerLineThatCannotBeReadAreHeldByTheOwnerOfTheFile) {
  std::filesystem::create_directory(folder_);
  const std::string path = folder_ + "/fulldeck-lease-gcu-A1.0123456789abcdef.lock";
  for (const std::string& line : {std::string(), std::string("no newline\talice\t12"), std::string("run\talice\t-4\n"),
                                  std::string("\talice\t12\n"), std::string(100'000, 'x')}) {
    const base::UniqueFd lock = LockedFile(path, line);
    CardLeases leases;
    EXPECT_FALSE(Take(leases, Card(0, "A1")));
    ASSERT_TRUE(held_by_) << line;
    EXPECT_EQ(held_by_->run_id, "");
    EXPECT_EQ(held_by_->user, NameOfUser(geteuid()));
    std::filesystem::remove(path);
  }
}

TEST_F(CardLeasesTest, ShowALineThatCannotSteerATerminal) {
  std::filesystem::create_directory(folder_);
  const base::UniqueFd lock = LockedFile(folder_ + "/fulldeck-lease-gcu-A1.0123456789abcdef.lock",
                                         "run\x1b[2J\tali\x07"
                                         "ce\t12\n");
  CardLeases leases;
  EXPECT_FALSE(Take(leases, Card(0, "A1")));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->run_id, "run?[2J");
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
  EXPECT_THAT(leases.held().at(0).path, StartsWith(state + "/simulated-gcu-8.leases/fulldeck-lease-gcu-SIM-gcu-0000."));
}

TEST_F(CardLeasesTest, AreKeptYoungAndMadeAgainWhereTheyWereCleanedUp) {
  CardLeases leases;
  ASSERT_TRUE(Take(leases, Card(0, "A1")));
  const std::string first = leases.held().at(0).path;
  const timespec old[2] = {{1'000'000, 0}, {1'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, first.c_str(), old, 0), 0);
  leases.Refresh();
  struct stat status {};
  ASSERT_EQ(stat(first.c_str(), &status), 0);
  EXPECT_GT(status.st_mtime, 1'000'000);
  EXPECT_EQ(leases.held().at(0).path, first);

  ASSERT_EQ(unlink(first.c_str()), 0);
  leases.Refresh();
  CardLeases others;
  EXPECT_FALSE(Take(others, Card(0, "A1")));
  ASSERT_TRUE(held_by_);
  EXPECT_EQ(held_by_->pid, getpid());
  leases.GiveBack("gcu 0");
  EXPECT_TRUE(Take(others, Card(0, "A1"))) << "the one that was made again is given back too";
}

TEST_F(CardLeasesTest, OfRealCardsAreKeptInOneFolderOfTheMachine) {
  EXPECT_EQ(CardLeases::FolderFor(Card(0, "A1"), {}), "/tmp");
  EXPECT_EQ(CardLeases::FolderFor(Card(0, "A1"), environment_), folder_);
  EXPECT_EQ(CardLeases::FolderFor(Card(0, "A1"), {{wire::kLeaseDirVariable, folder_ + "//"}}), folder_);
}

// Requires root: only root can become another user.
TEST_F(CardLeasesTest, AreSharedBetweenUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to act as two users";
  ASSERT_EQ(chmod(temporary_.string().c_str(), 0777), 0);
  MakeFolderOfRoot();
  const auto first = AsUser(12345, Card(0, "A1"));
  ASSERT_EQ(first->Output(), "taken");
  EXPECT_EQ(AsUser(23456, Card(0, "A1"))->Output(), "of-12345 of user 12345");
  first->Kill();
  const auto second = AsUser(23456, Card(0, "A1"));
  EXPECT_EQ(second->Output(), "taken") << "the file that the other user left is passed over";
  EXPECT_EQ(AsUser(12345, Card(0, "A1"))->Output(), "of-23456 of user 23456");
}

// What one user can do to the leases of another in a shared folder.
TEST_F(CardLeasesTest, OfOneUserCannotBeRemovedBlockedOrForgedByAnother) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to act as two users";
  ASSERT_EQ(chmod(temporary_.string().c_str(), 0777), 0);
  MakeFolderOfRoot();
  const auto victim = AsUser(61001, Card(0, "A1"));
  ASSERT_EQ(victim->Output(), "taken");
  OtherProcess attacker([this](int fd) {
    if (setgid(61002) != 0 || setuid(61002) != 0) return Send(fd, "no such user");
    std::string wrote;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string path = entry.path().string();
      if (unlink(path.c_str()) == 0 || rename(path.c_str(), (path + "x").c_str()) == 0) wrote += "removed ";
      if (open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0) wrote += "changed ";
      const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      struct flock whole {};
      whole.l_type = F_RDLCK;
      if (fcntl(file, F_OFD_SETLK, &whole) == 0) wrote += "locked ";
      flock(file, LOCK_EX | LOCK_NB);
    }
    // One unreadable file, and one with another user's name in it.
    static const base::UniqueFd hidden = LockedFile(folder_ + "/fulldeck-lease-gcu-A2.0123456789abcdef.lock", "", 0600);
    static const base::UniqueFd forged =
        LockedFile(folder_ + "/fulldeck-lease-gcu-A3.0123456789abcdef.lock", "nightrun\troot\t1\n");
    Send(fd, wrote + "done");
  });
  ASSERT_EQ(attacker.Output(), "done");
  EXPECT_EQ(AsUser(61003, Card(0, "A1"))->Output(), "of-61001 of user 61001");
  EXPECT_EQ(AsUser(61003, Card(0, "A2"))->Output(), "taken");
  EXPECT_EQ(AsUser(61003, Card(0, "A3"))->Output(), "nightrun of user 61002") << "the owner of the file is named";
}

TEST_F(CardLeasesTest, AreNotKeptInAFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to act as two users";
  ASSERT_EQ(chmod(temporary_.string().c_str(), 0777), 0);
  MakeFolderOfRoot();
  ASSERT_EQ(chown(folder_.c_str(), 61002, 61002), 0);
  EXPECT_THAT(AsUser(61001, Card(0, "A1"))->Output(), HasSubstr("belongs to user 61002"));
  EXPECT_EQ(AsUser(61002, Card(0, "A1"))->Output(), "taken");
}

TEST_F(CardLeasesTest, OfRacingUsersGoToOneOfThem) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to act as several users";
  ASSERT_EQ(chmod(temporary_.string().c_str(), 0777), 0);
  MakeFolderOfRoot();
  for (int round = 0; round < 10; ++round) {
    const device::Card card = Card(0, "R" + std::to_string(round));
    std::vector<std::unique_ptr<OtherProcess>> runs;
    for (uid_t user = 61001; user < 61007; ++user) runs.push_back(AsUser(user, card));
    int winners = 0;
    for (const auto& run : runs) winners += run->Output() == "taken" ? 1 : 0;
    EXPECT_EQ(winners, 1);
  }
}

}  // namespace
}  // namespace fulldeck::job
