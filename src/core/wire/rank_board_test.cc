#include "wire/rank_board.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "base/text.h"
#include "temporary_folder.h"
#include "wire/rank_board_layout.h"

namespace fulldeck::wire {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const BoardRun kRun{"20240517-kitten", 2, 4, 8, 16};

RankBoard Made(const BoardRun& run = kRun) {
  auto board = RankBoard::Create(run);
  EXPECT_TRUE(board.ok()) << board.error().message;
  return std::move(*board);
}

std::string PathOf(const RankBoard& board) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(board.fd());
}

Supervision SomeSupervision() {
  return {{4711, 99}, RankState::kStopped, 12345, 0x137f, "gcu 3", "T20-0042", "0-15,32-47", CardUse::kBusy};
}

void ExpectEqual(const Supervision& one, const Supervision& two) {
  EXPECT_EQ(one.process.pid, two.process.pid);
  EXPECT_EQ(one.process.start_ticks, two.process.start_ticks);
  EXPECT_EQ(one.state, two.state);
  EXPECT_EQ(one.since_ns, two.since_ns);
  EXPECT_EQ(one.wait_status, two.wait_status);
  EXPECT_EQ(one.card, two.card);
  EXPECT_EQ(one.card_serial, two.card_serial);
  EXPECT_EQ(one.processors, two.processors);
  EXPECT_EQ(one.card_use, two.card_use);
}

TEST(RankBoard, ShowsReadersTheRunAndWhatTheSupervisorWrote) {
  RankBoard board = Made();
  board.WriteSupervision(3, SomeSupervision());
  auto by_path = RankBoard::Open(PathOf(board));
  auto by_descriptor = RankBoard::OpenFd(board.fd());
  ASSERT_TRUE(by_path.ok()) << by_path.error().message;
  ASSERT_TRUE(by_descriptor.ok()) << by_descriptor.error().message;
  for (const RankBoard* reader : {&board, &*by_path, &*by_descriptor}) {
    EXPECT_EQ(reader->run().run_id, "20240517-kitten");
    EXPECT_EQ(reader->run().attempt, 2);
    EXPECT_EQ(reader->run().local_ranks, 4);
    EXPECT_EQ(reader->run().first_rank, 8);
    EXPECT_EQ(reader->run().world_size, 16);
    EXPECT_TRUE(Age(reader->run().made_ns, base::SteadyClock::Instance().Now()));
    const auto supervision = reader->ReadSupervision(3);
    ASSERT_TRUE(supervision);
    ExpectEqual(*supervision, SomeSupervision());
    EXPECT_FALSE(reader->ReadSupervision(2));
  }
}

TEST(RankBoard, IsReadByAnotherProcessThroughTheSupervisorsDescriptor) {
  RankBoard board = Made();
  board.WriteSupervision(0, SomeSupervision());
  const std::string path = PathOf(board);
  const pid_t child = fork();
  if (child == 0) {
    const auto mine = RankBoard::Open(path);
    _exit(mine.ok() && mine->ReadSupervision(0)->process.pid == 4711 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(RankBoard, SaysThatNothingWasWrittenYet) {
  const RankBoard board = Made();
  Reading reading = Reading::kValue;
  EXPECT_FALSE(board.ReadSupervision(0, &reading));
  EXPECT_EQ(reading, Reading::kNeverWritten);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(board.ReadProcess(rank));
    EXPECT_FALSE(board.ReadLoop(rank));
    EXPECT_FALSE(board.ReadHeartbeat(rank));
    EXPECT_FALSE(board.ReadError(rank));
    for (int slot = 0; slot < kBoardGroups; ++slot) EXPECT_FALSE(board.ReadCollective(rank, slot));
  }
}

TEST(RankBoard, OutlivesAMoveAndLeavesNothingBehind) {
  int descriptor = -1;
  {
    RankBoard board = Made();
    descriptor = board.fd();
    board.WriteSupervision(1, SomeSupervision());
    RankBoard moved = std::move(board);
    board = Made();
    EXPECT_FALSE(board.ReadSupervision(1));
    board = std::move(moved);
    EXPECT_EQ(board.fd(), descriptor);
    EXPECT_TRUE(board.ReadSupervision(1));
  }
  EXPECT_LT(fcntl(descriptor, F_GETFD), 0);
}

TEST(RankBoard, IsForItsOwnerAloneAndItsSizeCannotBeChanged) {
  const RankBoard board = Made();
  struct stat status {};
  ASSERT_EQ(fstat(board.fd(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(status.st_size, 4096 + 4 * 8192);
  EXPECT_NE(ftruncate(board.fd(), 10), 0);
  EXPECT_NE(ftruncate(board.fd(), 1 << 20), 0);
  EXPECT_NE(fcntl(board.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(RankBoard, IsNotMadeForAnImpossibleRun) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const BoardRun impossible[] = {{"r", 0, 0, 0, 1},         {"r", 0, -1, 0, 1},
                                 {"r", 0, 4097, 0, 5000},   {"r", 0, 4, 1, 4},
                                 {"r", 0, 4, -1, 4},        {"r", -1, 4, 0, 4},
                                 {"r", 0, 1, kMost, kMost}, {"r", 0, 1, 0, kMost},
                                 {"r", kMost, 1, 0, 1},     {"r", 0, 1, 0, std::numeric_limits<int>::min()}};
  for (const BoardRun& run : impossible) {
    const auto board = RankBoard::Create(run);
    ASSERT_FALSE(board.ok());
    EXPECT_THAT(board.error().message, HasSubstr("there can be no rank board for " + std::to_string(run.local_ranks)));
  }
  EXPECT_TRUE(RankBoard::Create({"r", 0, 4096, 0, 4096}).ok());
}

TEST(RankBoard, CutsLongTextsAtTheEndOfACharacter) {
  const std::string kittens(100, 'k');
  RankBoard board = Made({std::string(190, 'r') + "\u732b", 0, 1, 0, 1});
  EXPECT_EQ(board.run().run_id, std::string(190, 'r'));
  Supervision supervision = SomeSupervision();
  supervision.card = std::string(29, 'x') + "\u732b";  // three bytes, of which two fit
  supervision.card_serial = kittens;
  supervision.processors = std::string("0-3\0hidden", 10);
  board.WriteSupervision(0, supervision);
  const auto read = board.ReadSupervision(0);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->card, std::string(29, 'x'));
  EXPECT_EQ(read->card_serial, std::string(47, 'k'));
  EXPECT_EQ(read->processors, "0-3");
}

TEST(RankBoard, CutsTextThatIsNotUtf8WhereItMust) {
  EXPECT_EQ(WholeCharacters("abc", 5), 3U);
  EXPECT_EQ(WholeCharacters("", 0), 0U);
  EXPECT_EQ(WholeCharacters("ab\xe7\x8c\xab", 4), 2U);
  EXPECT_EQ(WholeCharacters("a\xf0\x9f\x90\x88", 4), 1U);
  EXPECT_EQ(WholeCharacters(std::string(20, '\x80'), 10), 10U);
  EXPECT_EQ(WholeCharacters(std::string(3, '\x80'), 2), 0U);
}

TEST(RankBoard, MakesTextsFitToBeShown) {
  RankBoard board = Made();
  Supervision supervision = SomeSupervision();
  supervision.card = "gcu\x1b[2J\xff 3";
  board.WriteSupervision(0, supervision);
  EXPECT_EQ(board.ReadSupervision(0)->card, base::Printable("gcu\x1b[2J\xff 3"));
  EXPECT_THAT(board.ReadSupervision(0)->card, ::testing::Not(HasSubstr("\x1b")));
}

TEST(RankBoard, NamesEveryStatePhaseOperationAndDatatype) {
  EXPECT_STREQ(RankStateName(RankState::kStarting), "starting");
  EXPECT_STREQ(RankStateName(RankState::kKilled), "killed");
  EXPECT_STREQ(PhaseName(Phase::kNotReported), "not told");
  EXPECT_STREQ(PhaseName(Phase::kData), "data");
  EXPECT_STREQ(PhaseName(Phase::kCheckpoint), "checkpoint");
  EXPECT_STREQ(PhaseName(Phase::kOther), "other");
  EXPECT_STREQ(OperationName(FULLDECK_BOARD_ALL_REDUCE), "all_reduce");
  EXPECT_STREQ(OperationName(FULLDECK_BOARD_REDUCE_SCATTER), "reduce_scatter");
  EXPECT_STREQ(OperationName(FULLDECK_BOARD_RECEIVE), "receive");
  EXPECT_STREQ(DatatypeName(FULLDECK_BOARD_BFLOAT16), "bfloat16");
  EXPECT_STREQ(DatatypeName(FULLDECK_BOARD_COMPLEX128), "complex128");
  EXPECT_STREQ(RankStateName(static_cast<RankState>(0)), "?");
  EXPECT_STREQ(PhaseName(static_cast<Phase>(1000)), "?");
  EXPECT_STREQ(OperationName(FULLDECK_BOARD_MEETING + 1), "?");
  EXPECT_STREQ(DatatypeName(15), "?");
}

TEST(RankBoard, ComputesAgesWithoutBeingFooledByTimesThatLieAhead) {
  base::ManualClock clock;
  const auto now = static_cast<std::uint64_t>(clock.Now().time_since_epoch().count());
  EXPECT_FALSE(Age(0, clock.Now()));
  EXPECT_EQ(Age(now - 5, clock.Now()), 5ns);
  EXPECT_EQ(Age(now, clock.Now()), 0ns);
  EXPECT_EQ(Age(now + 5, clock.Now()), 0ns);
  EXPECT_EQ(Age(~std::uint64_t{0}, clock.Now()), 0ns);
}

// ---- what is not, or no longer, a board ----

// Memory with these bytes, sealed as a board is unless `seals` says otherwise.
base::UniqueFd Memory(const void* bytes, std::size_t count, std::size_t size, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  base::UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(pwrite(fd.get(), bytes, count, 0), static_cast<ssize_t>(count));
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

BoardHeaderBytes SoundHeader() {
  const RankBoard board = Made();
  BoardHeaderBytes header{};
  EXPECT_EQ(pread(board.fd(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  return header;
}

struct Corrupt {
  const char* name;
  void (*spoil)(BoardHeaderBytes&);
  const char* says;
};

class CorruptHeader : public ::testing::TestWithParam<Corrupt> {};

TEST_P(CorruptHeader, IsRefusedWithTheReason) {
  BoardHeaderBytes header = SoundHeader();
  const std::size_t size = header.header.length;
  ASSERT_TRUE(RankBoard::OpenFd(Memory(&header, sizeof header, size).get()).ok()) << "sound before it is spoilt";
  GetParam().spoil(header);
  const auto fd = Memory(&header, sizeof header, size);
  for (const auto& board : {RankBoard::OpenFd(fd.get()), RankBoard::OpenFdToWrite(fd.get()),
                            RankBoard::Open("/proc/self/fd/" + std::to_string(fd.get()))}) {
    ASSERT_FALSE(board.ok());
    EXPECT_THAT(board.error().message, HasSubstr(GetParam().says));
    EXPECT_THAT(board.error().message, HasSubstr("the rank board"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, CorruptHeader,
    ::testing::Values(
        Corrupt{"NoMagic", [](auto& h) { h.header.magic[3] = 'x'; }, "does not start with FDRBOARD"},
        Corrupt{"AllZero", [](auto& h) { h = {}; }, "does not start with FDRBOARD"},
        Corrupt{"AllOnes", [](auto& h) { std::memset(static_cast<void*>(&h), 0xff, sizeof h); }, "does not start with"},
        Corrupt{"OlderVersion", [](auto& h) { h.header.version = 0; },
                "has version 0, this fulldeck speaks version 1: use the same fulldeck"},
        Corrupt{"NewerVersion", [](auto& h) { h.header.version = 2; },
                "has version 2, this fulldeck speaks version 1: use the same fulldeck"},
        Corrupt{"NewerVersionOfAnotherShape",
                [](auto& h) { h.header.version = 2, h.header.length = ~0U, h.record_bytes = 1; }, "has version 2"},
        Corrupt{"ImpossibleLength", [](auto& h) { h.header.length = ~0U; }, "more than the"},
        Corrupt{"LengthBeyondTheMapping", [](auto& h) { h.header.length += 8192; },
                "is damaged: its header says 45056 bytes, and it has 36864"},
        Corrupt{"LengthShortOfTheMapping", [](auto& h) { h.header.length -= 1; },
                "is damaged: its header says 36863 bytes"},
        Corrupt{"NoRanks", [](auto& h) { h.local_ranks = 0; }, "says 0 ranks"},
        Corrupt{"TooManyRanks", [](auto& h) { h.local_ranks = 4097; }, "says 4097 ranks"},
        Corrupt{"RanksThatOverflowTheSize", [](auto& h) { h.local_ranks = 0x80004; }, "says 524292 ranks"},
        Corrupt{"MoreRanksThanRecords", [](auto& h) { h.local_ranks = 5; },
                "5 records of 8192 bytes from byte 4096 on, which do not fill 36864"},
        Corrupt{"FewerRanksThanRecords", [](auto& h) { h.local_ranks = 3; }, "3 records of 8192 bytes"},
        Corrupt{"RecordsElsewhere", [](auto& h) { h.records_at = 0xfffff000; }, "from byte 4294963200"},
        Corrupt{"RecordsInTheHeader", [](auto& h) { h.records_at = 0; }, "from byte 0"},
        Corrupt{"SmallRecords", [](auto& h) { h.record_bytes = 64; }, "records of 64 bytes"},
        Corrupt{"RanksBeyondTheWorld", [](auto& h) { h.first_rank = 13; }, "ranks 13 and 3 more of 16"},
        Corrupt{"FirstRankThatOverflows", [](auto& h) { h.first_rank = ~0U; }, "ranks 4294967295 and"},
        Corrupt{"NegativeWorld", [](auto& h) { h.world_size = 0x80000000; }, "more of 2147483648"},
        Corrupt{"NegativeAttempt", [](auto& h) { h.attempt = ~0U; }, "is damaged"},
        Corrupt{"EndlessRunId", [](auto& h) { h.run_id.fill('r'); }, "the run's name does not end"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(RankBoardFile, SaysWhichErrorItWasForTheCInterface) {
  BoardHeaderBytes header = SoundHeader();
  header.header.version = 7;
  EXPECT_EQ(RankBoard::OpenFd(Memory(&header, sizeof header, header.header.length).get()).error().system_error, EPROTO);
  header.header.magic[0] = 'x';
  EXPECT_EQ(RankBoard::OpenFd(Memory(&header, sizeof header, header.header.length).get()).error().system_error, EINVAL);
}

TEST(RankBoardFile, IsRefusedWhenItIsCutShort) {
  const BoardHeaderBytes header = SoundHeader();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{239}, std::size_t{240},
                                 std::size_t{4096}, std::size_t{36863}}) {
    const auto fd = Memory(&header, std::min(size, sizeof header), size);
    EXPECT_FALSE(RankBoard::OpenFd(fd.get()).ok()) << size;
  }
}

TEST(RankBoardFile, IsRefusedWhenItCouldBeCutUnderItsReaders) {
  const BoardHeaderBytes header = SoundHeader();
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
    const auto fd = Memory(&header, sizeof header, header.header.length, seals);
    const auto board = RankBoard::OpenFd(fd.get());
    ASSERT_FALSE(board.ok());
    EXPECT_THAT(board.error().message, HasSubstr("is not memory of a fixed size"));
  }
}

TEST(RankBoardFile, IsNotSomethingElseThatThePathLeadsToByNow) {
  testing::TemporaryFolder folder;
  folder.Write("file", "FDRBOARD and more");
  ASSERT_EQ(mkfifo((folder.string() + "/pipe").c_str(), 0600), 0);
  for (const std::string name : {"/file", "/pipe", "", "/nothing"}) {
    EXPECT_FALSE(RankBoard::Open(folder.string() + name).ok()) << name;
  }
  EXPECT_FALSE(RankBoard::Open("/dev/null").ok());
  EXPECT_FALSE(RankBoard::OpenFd(-1).ok());
  EXPECT_EQ(RankBoard::Open("/proc/self/fd/999999").error().system_error, ENOENT);
}

// ---- a rank that overwrites its board ----

// The same numbers in every run (an xorshift), so that a failure is reproducible.
struct Noise {
  std::uint64_t state = 20240517;
  std::uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
};

// The whole board, writable, as a rank has it.
class Scribbled : public ::testing::Test {
 protected:
  Scribbled() : board_(Made()) {
    memory_ = static_cast<char*>(mmap(nullptr, Size(), PROT_READ | PROT_WRITE, MAP_SHARED, board_.fd(), 0));
  }
  ~Scribbled() override { munmap(memory_, Size()); }
  static std::size_t Size() { return BoardBytes(4); }
  RankRecord& Record(int rank) { return board_.RecordToWrite(rank); }

  // All fields of all ranks; every value that is returned must be safe to print.
  void ReadAll() {
    for (int rank = 0; rank < board_.run().local_ranks; ++rank) {
      if (const auto read = board_.ReadSupervision(rank)) {
        EXPECT_GE(read->process.pid, 0);
        EXPECT_STRNE(RankStateName(read->state), "?");
        for (const std::string& text : {read->card, read->card_serial, read->processors}) ExpectFit(text);
      }
      if (const auto read = board_.ReadProcess(rank)) {
        EXPECT_GT(read->process.pid, 0);
        ExpectFit(read->program);
      }
      const auto loop = board_.ReadLoop(rank);
      EXPECT_STRNE(PhaseName(loop ? loop->phase : Phase::kNotReported), "?");
      board_.ReadHeartbeat(rank);
      for (int slot = 0; slot < kBoardGroups; ++slot) {
        const auto read = board_.ReadCollective(rank, slot);
        if (!read) continue;
        EXPECT_NE(read->group, 0U);
        EXPECT_LT(read->rank, read->size);
        EXPECT_GE(read->root, -1);
        EXPECT_STRNE(OperationName(read->operation), "?");
        EXPECT_STRNE(DatatypeName(read->datatype), "?");
        ExpectFit(read->name);
      }
      if (const auto read = board_.ReadError(rank)) {
        for (const auto line : base::Split(read->text, '\n')) ExpectFit(std::string(line));
      }
    }
  }
  static void ExpectFit(const std::string& text) {
    EXPECT_EQ(text, base::Printable(text));
    EXPECT_LT(text.size(), 1500U);
  }

  RankBoard board_;
  char* memory_;
};

TEST_F(Scribbled, HeaderChangesNothingForWhoHasTheBoardOpen) {
  board_.WriteSupervision(3, SomeSupervision());
  std::memset(memory_, 0xff, kBoardRecordsAt);
  EXPECT_EQ(board_.run().local_ranks, 4);
  ASSERT_TRUE(board_.ReadSupervision(3));
  ExpectEqual(*board_.ReadSupervision(3), SomeSupervision());
  EXPECT_FALSE(RankBoard::OpenFd(board_.fd()).ok());
}

TEST_F(Scribbled, RecordsOfOneByteAreSeenAsDamage) {
  for (const int byte : {0xff, 0x7f, 0x01, 0x41}) {
    std::memset(memory_ + kBoardRecordsAt, byte, Size() - kBoardRecordsAt);
    Reading reading{};
    EXPECT_FALSE(board_.ReadSupervision(0, &reading));
    EXPECT_EQ(reading, Reading::kDamaged);
    EXPECT_FALSE(board_.ReadProcess(0, &reading));
    EXPECT_EQ(reading, Reading::kDamaged);
    EXPECT_FALSE(board_.ReadLoop(0, &reading));
    EXPECT_EQ(reading, Reading::kDamaged);
    EXPECT_FALSE(board_.ReadCollective(0, 7, &reading));
    EXPECT_EQ(reading, Reading::kDamaged);
    EXPECT_FALSE(board_.ReadError(0, &reading));
    EXPECT_EQ(reading, Reading::kDamaged);
    ReadAll();
  }
}

TEST_F(Scribbled, FieldsAreSeenAsDamageOneByOne) {
  const auto supervision = [](const auto& spoil) {
    SupervisionBytes bytes{};
    bytes.pid = 1, bytes.state = 2;
    spoil(bytes);
    return bytes;
  };
  const SupervisionBytes corrupted[] = {supervision([](auto& b) { b.state = 0; }),
                                        supervision([](auto& b) { b.state = 6; }),
                                        supervision([](auto& b) { b.pid = 0xffffffff; }),
                                        supervision([](auto& b) { b.card.fill('c'); }),
                                        supervision([](auto& b) { b.card_serial.fill('c'); }),
                                        supervision([](auto& b) { b.processors.fill('c'); })};
  Record(0).supervision.Write(supervision([](auto&) {}));
  EXPECT_TRUE(board_.ReadSupervision(0));
  for (const SupervisionBytes& bytes : corrupted) {
    Record(0).supervision.Write(bytes);
    EXPECT_FALSE(board_.ReadSupervision(0));
  }

  const auto collective = [](const auto& spoil) {
    CollectiveBytes bytes{};
    bytes.group = 1, bytes.size = 2, bytes.rank = 1, bytes.operation = 3, bytes.root = -1, bytes.sequence = 5,
    bytes.completed = 4;
    spoil(bytes);
    return bytes;
  };
  const CollectiveBytes wrong[] = {
      collective([](auto& b) { b.rank = 2; }),       collective([](auto& b) { b.size = 0; }),
      collective([](auto& b) { b.operation = 14; }), collective([](auto& b) { b.datatype = 15; }),
      collective([](auto& b) { b.root = -2; }),      collective([](auto& b) { b.completed = 6; }),
      collective([](auto& b) { b.name.fill('n'); })};
  Record(0).groups[0].Write(collective([](auto&) {}));
  ASSERT_TRUE(board_.ReadCollective(0, 0));
  EXPECT_TRUE(board_.ReadCollective(0, 0)->in_flight());
  for (const CollectiveBytes& bytes : wrong) {
    Record(0).groups[0].Write(bytes);
    EXPECT_FALSE(board_.ReadCollective(0, 0));
  }

  LoopBytes loop{};
  loop.phase = 12;
  Record(0).loop.Write(loop);
  EXPECT_FALSE(board_.ReadLoop(0));
  loop.phase = 11;
  loop.has_loss = 2;
  Record(0).loop.Write(loop);
  EXPECT_FALSE(board_.ReadLoop(0));

  ProcessBytes process{};
  Record(0).process.Write(process);
  EXPECT_FALSE(board_.ReadProcess(0)) << "pid 0";
}

TEST_F(Scribbled, MemoryIsReadWithoutHarmWhateverStandsInIt) {
  Noise random;
  for (int round = 0; round < 300; ++round) {
    // Many words are zero or small, so that some of them pass the checks.
    for (std::size_t at = kBoardRecordsAt; at < Size(); at += 8) {
      std::uint64_t word = random();
      if (word % 4 != 0) word = word % 8 < 4 ? 0 : word >> 60;
      std::memcpy(memory_ + at, &word, sizeof word);
    }
    ReadAll();
  }
}

TEST_F(Scribbled, MemoryIsReadWithoutHarmWhileItIsBeingScribbledOver) {
  std::atomic<bool> stop{false};
  // Word by word like a wild pointer, but atomically, so that only this code is under test.
  std::thread scribbler([this, &stop] {
    Noise random;
    auto* const words = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_);
    while (!stop.load(std::memory_order_relaxed)) {
      words[random() % (Size() / 8)].store(random() % 3 == 0 ? random() : random() % 16, std::memory_order_relaxed);
    }
  });
  for (int round = 0; round < 200; ++round) ReadAll();
  stop.store(true, std::memory_order_relaxed);
  scribbler.join();
}

}  // namespace
}  // namespace fulldeck::wire
