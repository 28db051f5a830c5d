#include "base/files/whole_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "base/files/unique_fd.h"
#include "temporary_folder.h"

namespace fulldeck::base {
namespace {

using ::testing::HasSubstr;

TEST(WholeFile, IsReadAsItWasWrittenAndNothingIsLeftBesideIt) {
  const fulldeck::testing::TemporaryFolder folder;
  const std::string path = folder.string() + "/file";
  for (const std::string& text : {std::string("first"), std::string(100'000, 'x'), std::string()}) {
    ASSERT_TRUE(ReplaceFile(path, text).ok());
    const auto read = ReadWholeFile(path, 1 << 20);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, text);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.string()), {}), 1);
}

TEST(WholeFile, IsNotWrittenThroughALinkThatStandsWhereItIsPrepared) {
  const fulldeck::testing::TemporaryFolder folder;
  folder.Write("victim", "precious");
  const std::string path = folder.string() + "/file";
  const std::string draft = path + ".writing-" + std::to_string(getpid());
  std::filesystem::create_symlink(folder.string() + "/victim", draft);
  ASSERT_TRUE(ReplaceFile(path, "new").ok());
  EXPECT_EQ(*ReadWholeFile(folder.string() + "/victim", 100), "precious");
  EXPECT_EQ(*ReadWholeFile(path, 100), "new");
  EXPECT_FALSE(std::filesystem::is_symlink(path));
}

TEST(WholeFile, ThatIsMissingTooLargeOrNoneIsNamed) {
  const fulldeck::testing::TemporaryFolder folder;
  folder.Write("file", "12345");
  const std::string path = folder.string() + "/file";
  EXPECT_TRUE(ReadWholeFile(path, 5).ok());
  EXPECT_THAT(ReadWholeFile(path, 4).error().message, HasSubstr(path + " is larger than 4 B"));
  EXPECT_THAT(ReadWholeFile(folder.string() + "/none", 9).error().message, HasSubstr("/none: No such file"));
  EXPECT_THAT(ReadWholeFile(folder.string(), 9).error().message, HasSubstr("Is a directory"));
  EXPECT_THAT(ReplaceFile(folder.string() + "/no/file", "x").error().message, HasSubstr("/no/file: No such file"));
}

TEST(WholeFile, OfUnknownSizeIsReadToItsEnd) {
  const auto status = ReadWholeFile("/proc/self/status", 1 << 16);
  ASSERT_TRUE(status.ok());
  EXPECT_THAT(*status, HasSubstr("\nPid:\t" + std::to_string(getpid()) + "\n"));
}

TEST(FileRange, IsWhatTheFileHasOfIt) {
  const fulldeck::testing::TemporaryFolder folder;
  folder.Write("ten", "0123456789");
  const UniqueFd file(open((folder.string() + "/ten").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadRange(file.get(), 2, 3), "234");
  EXPECT_EQ(ReadRange(file.get(), 7, 100), "789");
  EXPECT_EQ(ReadRange(file.get(), 20, 4), "");
  EXPECT_EQ(ReadRange(-1, 0, 4), "");
}

}  // namespace
}  // namespace fulldeck::base
