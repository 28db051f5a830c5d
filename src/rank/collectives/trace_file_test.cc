#include "collectives/trace_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "temporary_folder.h"

namespace fulldeck::collectives {
namespace {

namespace fs = std::filesystem;

// Removes the only file of the folder and returns its name.
std::string TakeTheFile(const std::string& folder) {
  const fs::path path = fs::directory_iterator(folder)->path();
  fs::remove(path);
  return path.string();
}

TEST(TraceFile, IsNoLinkPipeOrSecondNameThatSomebodyPutInItsPlace) {
  const testing::TemporaryFolder folder;
  const testing::TemporaryFolder elsewhere;
  const std::string precious = elsewhere.string() + "/precious";
  std::ofstream(precious) << "as it was";
  ASSERT_TRUE(TraceFile::Create(folder.string(), "world", 0).ok());
  ASSERT_TRUE(TraceFile::Create(folder.string(), "world", 0).ok()) << "a second group of the name appends";
  const std::string path = TakeTheFile(folder.string());
  fs::create_symlink(precious, path);
  EXPECT_FALSE(TraceFile::Create(folder.string(), "world", 0).ok());
  fs::remove(path);
  fs::create_hard_link(precious, path);
  EXPECT_FALSE(TraceFile::Create(folder.string(), "world", 0).ok());
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(TraceFile::Create(folder.string(), "world", 0).ok());
  EXPECT_EQ(fs::file_size(precious), 9U);
}

}  // namespace
}  // namespace fulldeck::collectives
