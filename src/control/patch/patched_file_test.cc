#include "patch/patched_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "temporary_folder.h"

namespace fulldeck::patch {
namespace {

using fulldeck::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kSource[] =
    "class Runner:\n    def wrap_model(self, model_wrapper_cfg, model):\n        if model_wrapper_cfg is None:\n"
    "            model = MMDistributedDataParallel(model)\n        return model\n";

class PatchedFileTest : public ::testing::Test {
 protected:
  PatchedFileTest() { Write(path_, kSource); }

  static void Write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename());
    return names;
  }
  PatchState State() { return PatchedFile(path_).Status()->state; }

  TemporaryFolder folder_;
  const std::string path_ = folder_.string() + "/runner.py";
};

TEST_F(PatchedFileTest, ComesBackAsItWas) {
  chmod(path_.c_str(), 0640);
  struct stat before {
  }, after{};
  stat(path_.c_str(), &before);
  PatchedFile file(path_);
  EXPECT_TRUE(*file.Patch(TraceWhen::kAlways));
  EXPECT_EQ(State(), PatchState::kPatched);
  EXPECT_EQ(WithoutLines(Read(path_)), kSource);
  stat(path_.c_str(), &after);
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_TRUE(*file.Restore());
  EXPECT_EQ(Read(path_), kSource);
  EXPECT_THAT(Names(), UnorderedElementsAre("runner.py"));
  stat(path_.c_str(), &after);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
}

TEST_F(PatchedFileTest, IsPatchedOnceHoweverOftenItIsRequested) {
  PatchedFile file(path_);
  EXPECT_TRUE(*file.Patch(TraceWhen::kAlways));
  const std::string patched = Read(path_);
  EXPECT_FALSE(*file.Patch(TraceWhen::kAlways));
  EXPECT_EQ(Read(path_), patched);
  EXPECT_TRUE(*file.Patch(TraceWhen::kOnRequest)) << "the other kind of lines takes the place of these";
  EXPECT_NE(Read(path_), patched);
  EXPECT_EQ(file.Status()->when, TraceWhen::kOnRequest);
  EXPECT_TRUE(*file.Restore());
  EXPECT_FALSE(*file.Restore());
  EXPECT_EQ(Read(path_), kSource);
}

TEST_F(PatchedFileTest, IsLeftAloneWhenSomebodyElseChangedIt) {
  PatchedFile file(path_);
  ASSERT_TRUE(file.Patch(TraceWhen::kOnRequest).ok());
  const std::string changed = Read(path_) + "# mine\n";
  Write(path_, changed);
  EXPECT_EQ(State(), PatchState::kChangedMeanwhile);
  for (const auto& outcome : {file.Restore(), file.Patch(TraceWhen::kOnRequest), file.Patch(TraceWhen::kAlways)}) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_THAT(outcome.error().message, HasSubstr("changed since fulldeck patched it"));
  }
  EXPECT_EQ(Read(path_), changed);
  EXPECT_EQ(Read(path_ + ".fulldeck-original"), kSource);
}

TEST_F(PatchedFileTest, ThatChangesWhileItIsPatchedIsLeftAlone) {
  PatchedFile file(path_, [&](const char* name) {
    if (std::string(name) == "look once more") Write(path_, "another");
    return true;
  });
  ASSERT_FALSE(file.Patch(TraceWhen::kOnRequest).ok());
  EXPECT_EQ(Read(path_), "another");
}

TEST_F(PatchedFileTest, ThatWasReinstalledIsPatchedAgain) {
  ASSERT_TRUE(PatchedFile(path_).Patch(TraceWhen::kOnRequest).ok());
  const std::string newer = std::string("# 0.11\n") + kSource;
  std::filesystem::remove(path_);
  Write(path_, newer);
  EXPECT_FALSE(PatchedFile(path_).Restore().ok());
  EXPECT_EQ(Read(path_), newer);
  EXPECT_TRUE(*PatchedFile(path_).Patch(TraceWhen::kOnRequest));
  EXPECT_TRUE(*PatchedFile(path_).Restore());
  EXPECT_EQ(Read(path_), newer);
}

TEST_F(PatchedFileTest, IsMadeAgainWhenTheOriginalIsGoneOrDamaged) {
  for (const bool gone : {true, false}) {
    ASSERT_TRUE(PatchedFile(path_).Patch(TraceWhen::kAlways).ok());
    std::filesystem::remove(path_ + ".fulldeck-original");
    if (!gone) Write(path_ + ".fulldeck-original", "damaged");
    EXPECT_TRUE(*PatchedFile(path_).Restore());
    EXPECT_EQ(Read(path_), kSource);
    EXPECT_THAT(Names(), UnorderedElementsAre("runner.py"));
  }
}

TEST_F(PatchedFileTest, IsNotTouchedWhereTheNoteIsDamagedOrGone) {
  ASSERT_TRUE(PatchedFile(path_).Patch(TraceWhen::kOnRequest).ok());
  const std::string patched = Read(path_);
  for (const std::string note : {"", "fulldeck patch 2\n", "fulldeck patch 1\nbefore x 3\nafter y 4\n"}) {
    Write(path_ + ".fulldeck-patch", note);
    EXPECT_FALSE(PatchedFile(path_).Restore().ok());
    EXPECT_FALSE(PatchedFile(path_).Patch(TraceWhen::kOnRequest).ok());
  }
  std::filesystem::remove(path_ + ".fulldeck-patch");
  EXPECT_EQ(State(), PatchState::kLinesWithoutNote);
  EXPECT_FALSE(PatchedFile(path_).Restore().ok());
  EXPECT_EQ(Read(path_), patched);
}

// Interrupts Patch or Restore before each of its steps in turn. The file must be complete each time, and both calls
// must be able to continue.
TEST_F(PatchedFileTest, IsRecoverableWhereverItWasInterrupted) {
  const std::string patched = *WithLines(kSource, TraceWhen::kOnRequest);
  for (const bool restoring : {false, true}) {
    for (const bool then_restore : {false, true}) {
      int stop_at = 0;
      for (bool interrupted = true; interrupted; ++stop_at) {
        ASSERT_LT(stop_at, 40);
        if (restoring) {
          ASSERT_TRUE(PatchedFile(path_).Patch(TraceWhen::kOnRequest).ok());
        }
        int step = 0;
        PatchedFile file(path_, [&](const char*) { return step++ < stop_at; });
        const auto outcome = restoring ? file.Restore() : file.Patch(TraceWhen::kOnRequest);
        interrupted = !outcome.ok();
        const std::string now = Read(path_);
        EXPECT_TRUE(now == kSource || now == patched) << stop_at;
        ASSERT_TRUE(PatchedFile(path_).Status().ok());
        if (!then_restore) {
          ASSERT_TRUE(PatchedFile(path_).Patch(TraceWhen::kOnRequest).ok()) << stop_at;
          EXPECT_EQ(Read(path_), patched) << stop_at;
        }
        ASSERT_TRUE(PatchedFile(path_).Restore().ok()) << stop_at;
        EXPECT_EQ(Read(path_), kSource) << stop_at;
        EXPECT_THAT(Names(), UnorderedElementsAre("runner.py")) << stop_at;
      }
      EXPECT_GT(stop_at, 4);
    }
  }
}

TEST_F(PatchedFileTest, IsFoundBehindALink) {
  const std::string link = folder_.string() + "/link.py";
  std::filesystem::create_symlink(path_, link);
  EXPECT_TRUE(*PatchedFile(link).Patch(TraceWhen::kOnRequest));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_NE(Read(path_), kSource);
}

// In a child that runs as nobody, because root may write everywhere.
TEST_F(PatchedFileTest, ReportsWhoMayChangeIt) {
  chmod(folder_.string().c_str(), 0555);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(9);
    const auto outcome = PatchedFile(path_).Patch(TraceWhen::kOnRequest);
    if (outcome.ok()) _exit(1);
    const std::string& words = outcome.error().message;
    const bool reported = words.find("may not be written by you") != std::string::npos &&
                          words.find("fulldeck run --trace-ddp") != std::string::npos;
    _exit(reported ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  chmod(folder_.string().c_str(), 0755);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read(path_), kSource);
}

TEST(PatchedFile, ThatIsNotThereIsAnError) {
  EXPECT_FALSE(PatchedFile("/nonexistent/runner.py").Status().ok());
  EXPECT_FALSE(PatchedFile("/nonexistent/runner.py").Patch(TraceWhen::kOnRequest).ok());
}

}  // namespace
}  // namespace fulldeck::patch
