#include "checkpoint/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/faulty_files.h"
#include "checkpoint/sample_for_test.h"
#include "temporary_folder.h"

namespace fulldeck::checkpoint {
namespace {

namespace fs = std::filesystem;
using fulldeck::testing::TemporaryFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// How often each kind of random damage is injected: FULLDECK_CHECKPOINT_DAMAGES, otherwise what is fast enough for
// every test run.
int Damages() {
  const char* wanted = std::getenv("FULLDECK_CHECKPOINT_DAMAGES");
  return wanted == nullptr ? 300 : std::atoi(wanted);
}

void Ignore(const std::string&) {}

std::vector<std::string> StepsIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Spill(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A directory with checkpoints of steps 100 and 200.
void WriteTwo(Files& files, const std::string& directory) {
  ASSERT_TRUE(files.MakeFolder(directory).ok());
  for (const std::uint64_t step : {100, 200})
    ASSERT_TRUE(WriteCheckpoint(files, directory, Sample(step).contents()).ok());
}

TEST(Checkpoint, IsReadAsItWasWritten) {
  QuickFolder folder;
  RealFiles files(/*syncs=*/false);
  const Sample sample(1234, 3000);
  const auto written = WriteCheckpoint(files, folder.string(), sample.contents());
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_THAT(StepsIn(folder.string()), ElementsAre("step-000001234"));
  const auto reader = CheckpointReader::Open(files, folder.string() + "/step-000001234");
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(reader->manifest(), *written);
  EXPECT_TRUE(reader->Verify().ok());
  EXPECT_TRUE(sample.IsIn(*reader));
  EXPECT_FALSE(Sample(1235, 3000).IsIn(*reader));
}

TEST(Checkpoint, OfTheSameStepIsReplaced) {
  QuickFolder folder;
  RealFiles files(/*syncs=*/false);
  ASSERT_TRUE(WriteCheckpoint(files, folder.string(), Sample(7).contents()).ok());
  const Sample sample(7);
  Contents other = sample.contents();
  other.scalars["epoch"] = std::int64_t{99};
  ASSERT_TRUE(WriteCheckpoint(files, folder.string(), other).ok());
  EXPECT_THAT(StepsIn(folder.string()), ElementsAre("step-000000007"));
  const auto reader = OpenNewestGood(files, folder.string());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(std::get<std::int64_t>(reader->scalars().at("epoch")), 99);
}

TEST(Checkpoint, WithAPartThatWouldLeaveTheFolderIsRefused) {
  QuickFolder folder;
  RealFiles files(/*syncs=*/false);
  for (const char* name : {"../x", "", ".x", "a/b", "a\nb"}) {
    Contents contents;
    contents.parts.push_back({name, {}});
    EXPECT_FALSE(WriteCheckpoint(files, folder.string(), contents).ok()) << name;
  }
  EXPECT_THAT(StepsIn(folder.string()), IsEmpty());
}

TEST(Checkpoint, FolderNamesAndStepsAgree) {
  EXPECT_EQ(FolderNameOf(1234), "step-000001234");
  EXPECT_EQ(FolderNameOf(12345678901), "step-12345678901");
  EXPECT_EQ(StepOfFolderName("step-12345678901"), 12345678901U);
  for (const char* bad :
       {"step-1234", "step-0000001234", "step-", "step-00000123x", "xstep-000001234", "step--00001234"})
    EXPECT_EQ(StepOfFolderName(bad), std::nullopt) << bad;
}

// The property "tries" of a test is the number of faults that it injected, for tests/grids/promises.py.

// ---- C1: the writer dies at every operation ----

// What a run does before it dies: it saves step 300 after 100 and 200, replaces a 200 and removes the oldest.
void SaveSome(Files& files, const std::string& directory) {
  auto store = Store::Open(files, directory, {{2, 0}}, Ignore);
  if (!store) return;
  if (!store->Save(Sample(200).contents())) return;
  (void)store->Save(Sample(300).contents());
}

std::uint64_t OperationsOfSaveSome() {
  QuickFolder folder;
  RealFiles real(/*syncs=*/false);
  WriteTwo(real, folder.string());
  FaultyFiles files(real, {});
  SaveSome(files, folder.string());
  EXPECT_THAT(StepsIn(folder.string()), ElementsAre("step-000000200", "step-000000300"));
  return files.operations();
}

void ExpectNothingLostAfter(const std::string& directory, const std::string& when) {
  RealFiles real(/*syncs=*/false);
  // A reader that opens the directory before it is repaired.
  const auto reader = OpenNewestGood(real, directory);
  ASSERT_TRUE(reader.ok()) << when << ": no good checkpoint is found";
  const std::uint64_t step = reader->manifest().step;
  EXPECT_TRUE(step == 200 || step == 300) << when << ": found step " << step;
  EXPECT_TRUE(Sample(step).IsIn(*reader)) << when;
  // Then the next run, which saves again.
  std::vector<std::string> logged;
  {
    RealFiles next(/*syncs=*/false);
    auto store = Store::Open(next, directory, {{2, 0}}, [&](const std::string& text) { logged.push_back(text); });
    ASSERT_TRUE(store.ok()) << when << ": " << store.error().message;
    const auto again = OpenNewestGood(real, directory);
    ASSERT_TRUE(again.ok()) << when;
    EXPECT_EQ(again->manifest().step, step) << when << ": putting right has changed what is found";
    const auto saved = store->Save(Sample(400).contents());
    ASSERT_TRUE(saved.ok()) << when << ": " << saved.error().message;
    ASSERT_TRUE(store->Save(Sample(500).contents()).ok()) << when;
  }
  EXPECT_THAT(StepsIn(directory), ElementsAre("step-000000400", "step-000000500")) << when << ": something is left";
}

class CheckpointDeath : public ::testing::TestWithParam<Fault> {};

TEST_P(CheckpointDeath, AtAnyOperationLosesNothingThatWasDurable) {
  const std::uint64_t operations = OperationsOfSaveSome();
  ASSERT_GT(operations, 40U);
  for (std::uint64_t at = 0; at < operations; ++at) {
    QuickFolder folder;
    RealFiles real(/*syncs=*/false);
    WriteTwo(real, folder.string());
    Fault fault = GetParam();
    fault.operation = at;
    FaultyFiles files(real, fault);
    SaveSome(files, folder.string());
    ASSERT_TRUE(files.dead()) << at;
    ExpectNothingLostAfter(folder.string(), "death at operation " + std::to_string(at));
    if (HasFatalFailure()) return;
  }
  RecordProperty("tries", static_cast<int>(operations));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointDeath,
                         ::testing::Values(Fault{Fault::Kind::kCrash},
                                           Fault{Fault::Kind::kPowerLoss, 0, 0, false, Fault::Lost::kDataAndNames},
                                           Fault{Fault::Kind::kPowerLoss, 0, 0, false, Fault::Lost::kDataButNotNames}));

// ---- C2: write errors ----

TEST(Checkpoint, AnErrorAtAnyOperationIsReportedAndKeepsWhatWasThere) {
  const std::uint64_t operations = OperationsOfSaveSome();
  int tries = 0;
  for (const int error : {ENOSPC, EIO}) {
    const bool lasting = error == ENOSPC;  // a full disk stays full
    for (std::uint64_t at = 0; at < operations; ++at) {
      const std::string when = "errno " + std::to_string(error) + " at operation " + std::to_string(at);
      QuickFolder folder;
      RealFiles real(/*syncs=*/false);
      WriteTwo(real, folder.string());
      FaultyFiles files(real, {Fault::Kind::kError, at, error, lasting});
      {
        auto store = Store::Open(files, folder.string(), {{2, 0}}, Ignore);
        if (!store) continue;  // the very first operation failed; there is nothing to check yet
        ++tries;
        for (const std::uint64_t step : {200, 300}) {
          const auto saved = store->Save(Sample(step).contents());
          const auto found = OpenNewestGood(real, folder.string());
          ASSERT_TRUE(found.ok()) << when;
          ASSERT_TRUE(Sample(found->manifest().step).IsIn(*found)) << when;
          if (saved.ok()) {
            ASSERT_EQ(found->manifest().step, step) << when;
          } else {
            EXPECT_THAT(saved.error().message, HasSubstr("step " + std::to_string(step) + " not saved")) << when;
            EXPECT_EQ(saved.error().system_error, error) << when;
          }
        }
        // The disk works again: training continues and the next save is valid, without a restart.
        files.Heal();
        const auto saved = store->Save(Sample(400).contents());
        ASSERT_TRUE(saved.ok()) << when << ": " << saved.error().message;
      }
      EXPECT_THAT(StepsIn(folder.string()), Contains("step-000000400")) << when;
      EXPECT_LE(StepsIn(folder.string()).size(), 3U) << when << ": something is left";
      const auto found = OpenNewestGood(real, folder.string());
      ASSERT_TRUE(found.ok() && Sample(400).IsIn(*found)) << when;
    }
  }
  RecordProperty("tries", tries);
}

TEST(Checkpoint, ShortWritesAreGoneOnWith) {
  QuickFolder folder;
  RealFiles real(/*syncs=*/false);
  Fault fault;
  fault.longest_write = 7;
  FaultyFiles files(real, fault);
  ASSERT_TRUE(WriteCheckpoint(files, folder.string(), Sample(5).contents()).ok());
  const auto reader = OpenNewestGood(real, folder.string());
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(Sample(5).IsIn(*reader));
  RecordProperty("tries", 1);
}

// ---- C3: corruption ----

class Damaged : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTwo(real_, folder_.string());
    for (const auto& entry : fs::directory_iterator(Newest())) whole_[entry.path().filename()] = Slurp(entry.path());
    for (const auto& [name, bytes] : whole_) total_ += bytes.size();
  }
  fs::path Newest() const { return folder_.path() / "step-000000200"; }

  // A position among all bytes of the checkpoint.
  std::pair<std::string, std::size_t> Place(std::uint64_t number) const {
    std::size_t at = number % total_;
    for (const auto& [name, bytes] : whole_) {
      if (at < bytes.size()) return {name, at};
      at -= bytes.size();
    }
    return {};
  }

  // Step 200 is rejected with a message that names the file, and the tensor if the damage is in its data; step 100 is
  // found.
  void ExpectFallsBack(const std::string& file, std::size_t at, const std::string& what) {
    std::vector<std::string> passed;
    const auto reader = OpenNewestGood(real_, folder_.string(), &passed);
    ASSERT_TRUE(reader.ok()) << what;
    ASSERT_EQ(reader->manifest().step, 100U) << what << " was accepted";
    ASSERT_TRUE(Sample(100).IsIn(*reader)) << what;
    ASSERT_EQ(passed.size(), 1U) << what;
    ASSERT_THAT(passed[0], HasSubstr("step-000000200/" + file)) << what;
    const std::string& bytes = whole_.at(file);
    if (file == "manifest.json" || file == "state.json") return;
    std::size_t head = 8;
    for (std::size_t i = 0; i < 8; ++i)
      head += static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    if (at < head) return;
    const auto header = ParseHeader({bytes.data() + 8, head - 8}, bytes.size());
    ASSERT_TRUE(header.ok());
    for (const TensorEntry& entry : header->tensors) {
      if (at >= head + entry.begin && at < head + entry.end) {
        ASSERT_THAT(passed[0], HasSubstr("tensor \"" + entry.name + "\"")) << what;
      }
    }
  }

  QuickFolder folder_;
  RealFiles real_{/*syncs=*/false};
  std::map<std::string, std::string> whole_;
  std::size_t total_ = 0;
};

TEST_F(Damaged, AnyFlippedBitIsFoundNamedAndPassedOver) {
  std::mt19937_64 draw(1);
  for (int i = 0; i < Damages(); ++i) {
    const auto [file, at] = Place(draw());
    std::string bytes = whole_.at(file);
    const int bit = static_cast<int>(draw() % 8);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    Spill(Newest() / file, bytes);
    ExpectFallsBack(file, at,
                    file + " with bit " + std::to_string(bit) + " of byte " + std::to_string(at) + " flipped");
    if (HasFatalFailure()) return;
    Spill(Newest() / file, whole_.at(file));
  }
  const auto reader = OpenNewestGood(real_, folder_.string());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->manifest().step, 200U);
  RecordProperty("tries", Damages());
}

TEST_F(Damaged, AnyMissingEndIsFoundNamedAndPassedOver) {
  std::mt19937_64 draw(2);
  for (int i = 0; i < Damages(); ++i) {
    const auto [file, length] = Place(draw());
    fs::resize_file(Newest() / file, length);
    ExpectFallsBack(file, length, file + " cut to " + std::to_string(length) + " bytes");
    if (HasFatalFailure()) return;
    Spill(Newest() / file, whole_.at(file));
  }
  RecordProperty("tries", Damages());
}

TEST_F(Damaged, AFileThatIsGoneOrTooLongIsNamedToo) {
  for (const auto& [file, bytes] : whole_) {
    fs::remove(Newest() / file);
    ExpectFallsBack(file, 0, file + " removed");
    Spill(Newest() / file, bytes + "x");
    ExpectFallsBack(file, 0, file + " with a byte more");
    fs::remove(Newest() / file);
    fs::create_directory(Newest() / file);
    ExpectFallsBack(file, 0, file + " turned into a folder");
    fs::remove(Newest() / file);
    Spill(Newest() / file, bytes);
  }
}

TEST_F(Damaged, FilesOfAnotherCheckpointAreNotTakenForItsOwn) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    fs::copy_file(folder_.path() / "step-000000100" / file, Newest() / file, fs::copy_options::overwrite_existing);
    std::vector<std::string> passed;
    const auto reader = OpenNewestGood(real_, folder_.string(), &passed);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(reader->manifest().step, 100U) << file;
    EXPECT_THAT(passed, ElementsAre(HasSubstr(file)));
    Spill(Newest() / file, whole_.at(file));
  }
}

// ---- the directory ----

TEST(Store, RemovesWhatAWriterThatDiedLeftAndReportsIt) {
  TemporaryFolder folder;
  folder.Write(".writing-step-000000009-1-1-0/model.safetensors", "half");
  folder.Write(".removing-step-000000001/manifest.json", "half");
  folder.Write("notes.txt", "mine");
  folder.Write("best/model.safetensors", "mine");
  RealFiles files(/*syncs=*/false);
  std::vector<std::string> logged;
  const auto store = Store::Open(files, folder.string(), {}, [&](const std::string& text) { logged.push_back(text); });
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_THAT(StepsIn(folder.string()), ElementsAre("best", "notes.txt"));
  EXPECT_THAT(logged, ElementsAre(HasSubstr("did not live to finish")));
}

TEST(Store, PutsAReplacedCheckpointBackWhenItsWriterDied) {
  TemporaryFolder folder;
  RealFiles files(/*syncs=*/false);
  WriteTwo(files, folder.string());
  fs::rename(folder.path() / "step-000000200", folder.path() / ".replaced-step-000000200");
  const auto reader = OpenNewestGood(files, folder.string());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->manifest().step, 200U) << "a reader finds it under either name";
  const auto store = Store::Open(files, folder.string(), {}, Ignore);
  ASSERT_TRUE(store.ok());
  EXPECT_THAT(StepsIn(folder.string()), ElementsAre("step-000000100", "step-000000200"));
}

TEST(Store, LetsOnlyOneWriterIn) {
  TemporaryFolder folder;
  RealFiles files(/*syncs=*/false);
  {
    const auto first = Store::Open(files, folder.string(), {}, Ignore);
    ASSERT_TRUE(first.ok());
    const auto second = Store::Open(files, folder.string(), {}, Ignore);
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.error().message, HasSubstr("already writes checkpoints there"));
  }
  const auto third = Store::Open(files, folder.string(), {}, Ignore);
  EXPECT_TRUE(third.ok());
}

TEST(Store, KeepsTheLastAndTheBestAndNothingElse) {
  QuickFolder folder;
  RealFiles real(/*syncs=*/false);
  FaultyFiles files(real, {});
  auto store = Store::Open(files, folder.string(), {{2, 1}}, Ignore);
  ASSERT_TRUE(store.ok());
  for (const std::uint64_t step : {1, 2, 3, 4, 5}) {
    const Sample sample(step);
    Contents contents = sample.contents();
    contents.score = step == 2 ? 0.9 : 0.1;
    ASSERT_TRUE(store->Save(contents).ok());
  }
  EXPECT_THAT(StepsIn(folder.string()), ElementsAre("step-000000002", "step-000000004", "step-000000005"));
}

// C6: whatever fails and however often, a valid checkpoint exists at any time.
TEST(Store, NeverHasFewerThanOneVerifiedCheckpointWhileSavesFail) {
  std::mt19937_64 draw(3);
  int tries = 0;
  for (int round = 0; round < 60; ++round) {
    QuickFolder folder;
    RealFiles real(/*syncs=*/false);
    bool saved_once = false;
    for (std::uint64_t run = 0; run < 4; ++run) {
      Fault fault;
      fault.kind = draw() % 2 == 0 ? Fault::Kind::kError : Fault::Kind::kCrash;
      fault.operation = draw() % 60;
      fault.error = draw() % 2 == 0 ? ENOSPC : EIO;
      fault.lasting = draw() % 2 == 0;
      FaultyFiles files(real, fault);
      auto store = Store::Open(files, folder.string(), {{1, 0}}, Ignore);
      if (!store) {
        ++tries;
        continue;
      }
      for (std::uint64_t step = 1; step <= 4; ++step) {
        saved_once |= store->Save(Sample(run * 10 + step).contents()).ok();
        const auto found = OpenNewestGood(real, folder.string());
        ASSERT_EQ(found.ok() || !saved_once, true) << "round " << round << ", run " << run << ", step " << step;
        if (found) {
          ASSERT_TRUE(Sample(found->manifest().step).IsIn(*found));
        }
      }
      if (files.operations() > fault.operation) ++tries;  // otherwise the run ended before its fault
    }
  }
  RecordProperty("tries", tries);
}

TEST(Store, KeepsADamagedNewestFromPushingOutTheGoodOne) {
  QuickFolder folder;
  RealFiles real(/*syncs=*/false);
  FaultyFiles files(real, {});
  WriteTwo(files, folder.string());
  fs::resize_file(folder.path() / "step-000000200" / "manifest.json", 10);
  auto store = Store::Open(files, folder.string(), {{2, 0}}, Ignore);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(store->Save(Sample(150).contents()).ok());
  EXPECT_THAT(StepsIn(folder.string()), ElementsAre("step-000000100", "step-000000150", "step-000000200"));
  const auto found = OpenNewestGood(real, folder.string());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->manifest().step, 150U);
}

TEST(Store, OfADirectoryThatCannotBeMadeIsAnError) {
  TemporaryFolder folder;
  folder.Write("file", "x");
  RealFiles files(/*syncs=*/false);
  EXPECT_FALSE(Store::Open(files, folder.string() + "/file/below", {}, Ignore).ok());
  EXPECT_FALSE(Store::Open(files, folder.string() + "/file", {}, Ignore).ok());
  EXPECT_TRUE(Store::Open(files, folder.string() + "/a/b/c", {}, Ignore).ok());
}

TEST(Store, OfADirectoryThatDoesNotExistHasNoCheckpoints) {
  RealFiles files(/*syncs=*/false);
  const auto found = ListCheckpoints(files, "/nowhere/at/all");
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(*found, IsEmpty());
}

}  // namespace
}  // namespace fulldeck::checkpoint
