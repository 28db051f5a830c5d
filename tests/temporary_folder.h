// A test's own folder, removed with the object.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace fulldeck::testing {

class TemporaryFolder {
 public:
  // /dev/shm for tests that create thousands of small files, which are slow on a disk.
  explicit TemporaryFolder(const std::string& below = "/tmp") {
    std::string name = below + "/fulldeck-test-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string string() const { return path_.string(); }

  // Writes a file below the folder and creates missing parent folders.
  void Write(const std::filesystem::path& relative, std::string_view text) const {
    std::filesystem::create_directories((path_ / relative).parent_path());
    std::ofstream(path_ / relative) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace fulldeck::testing
