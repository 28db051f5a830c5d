#include "config/job_folder.h"

#include <algorithm>
#include <filesystem>

namespace fulldeck::config {

std::vector<std::string> JobFolder::Checkpoints() const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(checkpoints(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step-")) names.push_back(name);
  }
  // Step numbers have nine digits, or more if needed.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

}  // namespace fulldeck::config
