// A folder of this user's for the time of one run, in TMPDIR or /tmp; goes at the end with everything in it.
#pragma once

#include <string>
#include <utility>

#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::bench {

class WorkFolder {
 public:
  static base::Result<WorkFolder> Make(const base::Environment& environment);
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder();
  const std::string& path() const { return path_; }

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace fulldeck::bench
