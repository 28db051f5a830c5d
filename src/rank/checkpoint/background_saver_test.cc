#include "checkpoint/background_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "base/check.h"
#include "checkpoint/faulty_files.h"
#include "checkpoint/sample_for_test.h"
#include "checkpoint/staging_buffer.h"
#include "temporary_folder.h"

namespace fulldeck::checkpoint {
namespace {

using fulldeck::testing::TemporaryFolder;
using ::testing::HasSubstr;

void Ignore(const std::string&) {}

Store OpenStore(Files& files, const std::string& directory) {
  auto store = Store::Open(files, directory, {{2, 0}}, Ignore);
  FULLDECK_CHECK(store.ok());
  return std::move(*store);
}

TEST(BackgroundSaver, ReportsWhenACheckpointIsDurable) {
  TemporaryFolder folder;
  RealFiles files;
  std::vector<SaveOutcome> ended;
  const Sample sample(10, 100);
  BackgroundSaver saver(OpenStore(files, folder.string()),
                        [&](const SaveOutcome& outcome) { ended.push_back(outcome); });
  EXPECT_FALSE(saver.busy());
  EXPECT_EQ(saver.last_durable_step(), std::nullopt);
  saver.Start(sample.contents());
  ASSERT_TRUE(saver.Wait(std::chrono::seconds(60)));
  EXPECT_EQ(saver.last_durable_step(), 10U);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure, std::nullopt);
  EXPECT_GT(ended[0].bytes, 100U * 8 * 16 * 4);
  const auto outcome = saver.TakeOutcome();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->step, 10U);
  EXPECT_FALSE(saver.TakeOutcome().has_value());
}

TEST(BackgroundSaver, KeepsAFailureUntilItIsRead) {
  TemporaryFolder folder;
  RealFiles real;
  FaultyFiles files(real, {Fault::Kind::kError, 5, ENOSPC, true});
  BackgroundSaver saver(OpenStore(files, folder.string()), [](const SaveOutcome&) {});
  const Sample sample(10);
  saver.Start(sample.contents());
  ASSERT_TRUE(saver.Wait(std::chrono::seconds(60)));
  EXPECT_EQ(saver.last_durable_step(), std::nullopt);
  const auto outcome = saver.TakeOutcome();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->failure.value_or(""), HasSubstr("No space left on device"));
  files.Heal();
  saver.Start(sample.contents());
  ASSERT_TRUE(saver.Wait(std::chrono::seconds(60)));
  EXPECT_EQ(saver.last_durable_step(), 10U);
  RecordProperty("tries", 1);
}

TEST(BackgroundSaver, FinishesWhatIsUnderWayBeforeItGoes) {
  TemporaryFolder folder;
  RealFiles files;
  const Sample sample(10, 1000);
  {
    BackgroundSaver saver(OpenStore(files, folder.string()), [](const SaveOutcome&) {});
    saver.Start(sample.contents());
  }
  const auto reader = OpenNewestGood(files, folder.string());
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(sample.IsIn(*reader));
}

// C1 with a real process and a real kill: at sampled operations, or at all of them (FULLDECK_CHECKPOINT_KILLS=all), and
// at random times. The property "tries" is the number of kills, for tests/grids/promises.py.
TEST(CheckpointKill, OfTheWriterAtAnyOperationLosesNothing) {
  const char* wanted = std::getenv("FULLDECK_CHECKPOINT_KILLS");
  const bool all = wanted != nullptr && std::string(wanted) == "all";
  RealFiles real;
  std::uint64_t operations = 0;
  int tries = 0;
  {
    TemporaryFolder folder;
    FaultyFiles files(real, {});
    Store store = OpenStore(files, folder.string());
    for (const std::uint64_t step : {100, 200, 300}) ASSERT_TRUE(store.Save(Sample(step).contents()).ok());
    operations = files.operations();
  }
  for (std::uint64_t at = 0; at < operations; at += all ? 1 : 11) {
    TemporaryFolder folder;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FaultyFiles files(real, {Fault::Kind::kKill, at});
      auto store = Store::Open(files, folder.string(), {{2, 0}}, Ignore);
      for (const std::uint64_t step : {100, 200, 300}) (void)store->Save(Sample(step).contents());
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << at;
    ++tries;
    auto store = Store::Open(real, folder.string(), {{2, 0}}, Ignore);
    ASSERT_TRUE(store.ok()) << at << ": " << store.error().message;
    std::vector<std::string> passed;
    const auto found = OpenNewestGood(real, folder.string(), &passed);
    EXPECT_TRUE(passed.empty()) << at << ": a bad checkpoint stands under a good name: " << passed[0];
    // The first save is durable well before the last third of all operations.
    ASSERT_TRUE(found.ok() || at < operations / 3 + 3) << at;
    if (found) {
      EXPECT_TRUE(Sample(found->manifest().step).IsIn(*found)) << at;
    }
  }
  RecordProperty("tries", tries);
}

TEST(CheckpointKill, AtARandomMomentLosesNothingThatWasAnnounced) {
  const char* wanted = std::getenv("FULLDECK_CHECKPOINT_KILLS");
  const int rounds = wanted != nullptr ? 200 : 8;
  RealFiles real;
  std::mt19937_64 draw(4);
  for (int round = 0; round < rounds; ++round) {
    TemporaryFolder folder;
    int announced[2];
    ASSERT_EQ(pipe(announced), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = Store::Open(real, folder.string(), {{2, 0}}, Ignore);
      for (std::uint64_t step = 1; step < 100000; ++step) {
        const Sample sample(step, 50);
        if (!store->Save(sample.contents()).ok()) _exit(1);
        if (write(announced[1], &step, sizeof step) != sizeof step) _exit(1);
      }
      _exit(0);
    }
    close(announced[1]);
    // Wait for the first checkpoint, then for a random time.
    std::uint64_t last = 0;
    ASSERT_EQ(read(announced[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    std::this_thread::sleep_for(std::chrono::microseconds(draw() % 60000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    for (std::uint64_t step = 0; read(announced[0], &step, sizeof step) == sizeof step;) last = step;
    close(announced[0]);
    std::vector<std::string> passed;
    const auto found = OpenNewestGood(real, folder.string(), &passed);
    ASSERT_TRUE(found.ok());
    EXPECT_TRUE(passed.empty()) << passed[0];
    EXPECT_GE(found->manifest().step, last);
    EXPECT_TRUE(Sample(found->manifest().step, 50).IsIn(*found));
  }
  RecordProperty("tries", rounds);
}

TEST(StagingBuffer, CopiesRangesOfAnyLengthAndPlace) {
  StagingBuffer buffer;
  ASSERT_TRUE(buffer.Reserve(30 << 20).ok());
  const auto* before = buffer.data();
  ASSERT_TRUE(buffer.Reserve(20 << 20).ok());
  EXPECT_EQ(buffer.data(), before) << "kept";
  std::vector<std::string> chunks;
  std::vector<CopyJob> jobs;
  std::uint64_t at = 0;
  std::mt19937_64 draw(5);
  for (const std::size_t bytes : {0U, 1U, 63U, 65535U, 65536U, 65537U, 200001U, 9000001U, 12000000U, 5U}) {
    std::string chunk(bytes, '\0');
    for (std::size_t i = 0; i < bytes; i += 97) chunk[i] = static_cast<char>(draw());
    chunks.push_back(std::move(chunk));
  }
  for (const std::string& chunk : chunks) {
    jobs.push_back({chunk.data(), buffer.data() + at, chunk.size()});
    at += chunk.size() + 3;
  }
  CopyAll(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    EXPECT_EQ(std::memcmp(jobs[i].to, chunks[i].data(), chunks[i].size()), 0) << i;
}

}  // namespace
}  // namespace fulldeck::checkpoint
