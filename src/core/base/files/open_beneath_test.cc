#include "base/files/open_beneath.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/files/whole_file.h"
#include "temporary_folder.h"

namespace fulldeck::base {
namespace {

class Beneath : public ::testing::Test {
 protected:
  Beneath() {
    temporary_.Write("run/logs/train.log", "said");
    temporary_.Write("elsewhere/private", "secret");
    std::filesystem::create_symlink("../elsewhere", folder_ + "/linked");
    std::filesystem::create_symlink("../../elsewhere/private", folder_ + "/logs/link");
  }
  int ErrorOf(std::string_view relative) {
    const auto file = OpenBeneath(folder_, relative);
    return file ? 0 : file.error().system_error;
  }
  testing::TemporaryFolder temporary_;
  std::string folder_ = temporary_.string() + "/run";
};

TEST_F(Beneath, OpensTheFilesOfTheFolder) {
  const auto file = OpenBeneath(folder_, "logs/train.log");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(ReadRange(file->get(), 0, 100), "said");
  EXPECT_EQ(ErrorOf("logs/none"), ENOENT);
  EXPECT_EQ(ErrorOf("none/train.log"), ENOENT);
}

TEST_F(Beneath, FollowsNoLinkAndNoWayOut) {
  EXPECT_EQ(ErrorOf("logs/link"), ELOOP);
  EXPECT_EQ(ErrorOf("linked/private"), ELOOP);
  EXPECT_EQ(ErrorOf("../elsewhere/private"), ELOOP);
  EXPECT_FALSE(OpenBeneath(folder_, "logs").ok());
}

TEST_F(Beneath, RefusesAFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(chown(folder_.c_str(), 61001, 61001), 0);
  EXPECT_EQ(ErrorOf("logs/train.log"), EPERM);
  ASSERT_EQ(chown((folder_ + "/logs/train.log").c_str(), 61001, 61001), 0);
  EXPECT_TRUE(OpenBeneath(folder_, "logs/train.log").ok());
}

}  // namespace
}  // namespace fulldeck::base
