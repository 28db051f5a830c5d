// Writes TensorBoard event files: scalars, texts and images. Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::report {

class EventFile {
 public:
  // Creates the folder and a new file events.out.tfevents.SECONDS.HOST.PID in it. `resumed_at`: the step after which
  // the run resumes; TensorBoard then ignores later steps of earlier files.
  static base::Result<EventFile> Create(const std::string& folder,
                                        std::optional<std::int64_t> resumed_at = std::nullopt);
  // Flushes; errors are ignored.
  ~EventFile();
  EventFile(EventFile&&) noexcept = default;
  EventFile& operator=(EventFile&&) = delete;

  base::Result<void> Scalar(const std::string& tag, std::int64_t step, double value);
  base::Result<void> Text(const std::string& tag, std::int64_t step, const std::string& text);
  base::Result<void> Png(const std::string& tag, std::int64_t step, int width, int height, const std::string& png);
  // Writes to the file; without it, up to 64 KiB may still be in memory.
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
