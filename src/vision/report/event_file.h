// TensorBoard's event files: scalars, texts and images, as the real TensorBoard reads them.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::report {

class EventFile {
 public:
  // A new file events.out.tfevents.SECONDS.HOST.PID in the folder, which is made. A run that resumes after the step
  // `resumed_at` says so, and TensorBoard leaves out what an earlier file has of later steps.
  static base::Result<EventFile> Create(const std::string& folder,
                                        std::optional<std::int64_t> resumed_at = std::nullopt);
  // Flushes; what fails then is lost in silence.
  ~EventFile();
  EventFile(EventFile&&) noexcept = default;
  EventFile& operator=(EventFile&&) = delete;

  base::Result<void> Scalar(const std::string& tag, std::int64_t step, double value);
  base::Result<void> Text(const std::string& tag, std::int64_t step, const std::string& text);
  base::Result<void> Png(const std::string& tag, std::int64_t step, int width, int height, const std::string& png);
  // To the file; without it up to 64 KiB of what was written may still be in memory.
  base::Result<void> Flush();
  const std::string& path() const { return path_; }

 private:
  explicit EventFile(base::UniqueFd file, std::string path);
  base::Result<void> Write(std::int64_t step, const std::string& summary_value);
  base::UniqueFd file_;
  std::string path_;
  std::string buffer_;
};

}  // namespace fulldeck::report
