#include "wire/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "temporary_folder.h"

namespace fulldeck::wire {
namespace {

TEST(PrivateFolder, IsAnotherWhereAnotherUserHasTakenTheName) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  const testing::TemporaryFolder temporary;
  const std::string folder = temporary.string() + "/fulldeck-0";
  EXPECT_EQ(OwnedFolder(folder), folder) << "it is not there yet";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  EXPECT_EQ(OwnedFolder(folder), folder);
  ASSERT_EQ(chown(folder.c_str(), 61001, 61001), 0);
  // Folders that match the name but are not private do not count.
  ASSERT_EQ(mkdir((folder + ".AAAAAA").c_str(), 0777), 0);
  ASSERT_EQ(chmod((folder + ".AAAAAA").c_str(), 0777), 0);
  const std::string own = OwnedFolder(folder);
  EXPECT_NE(own, folder);
  EXPECT_NE(own, folder + ".AAAAAA");
  EXPECT_TRUE(CheckPrivateFolder(own, "").ok());
  EXPECT_EQ(OwnedFolder(folder), own) << "the same for whoever asks later";
}

}  // namespace
}  // namespace fulldeck::wire
