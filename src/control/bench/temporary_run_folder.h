// A folder of this user for the duration of one run, in TMPDIR or /tmp. Removed at the end with its contents.
#pragma once

#include <string>
#include <utility>

#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::bench {

class TemporaryRunFolder {
 public:
  static base::Result<TemporaryRunFolder> Make(const base::Environment& environment);
  TemporaryRunFolder(TemporaryRunFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TemporaryRunFolder& operator=(TemporaryRunFolder&&) = delete;
  ~TemporaryRunFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryRunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace fulldeck::bench
