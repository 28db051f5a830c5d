// libtiff on memory, without output: its messages are kept for the error. Knows GeoTIFF's tags. Empty in a build
// without libtiff.
#pragma once

#ifdef FULLDECK_HAS_TIFF
#include <tiffio.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "imagery/files.h"

namespace fulldeck::imagery {

class TiffHandle {
 public:
  // If get() is nullptr, opening failed and error() has the reason. `bytes` must outlive the handle.
  static TiffHandle Reading(std::string_view bytes);
  // Close returns the file. `large`: BigTIFF, for more than classic TIFF can hold.
  static TiffHandle Writing(bool large);
  ~TiffHandle();
  TiffHandle(TiffHandle&&) noexcept;
  TiffHandle& operator=(TiffHandle&&) = delete;

  TIFF* get() const;
  // The first message of libtiff, or `otherwise`.
  base::Error error(const char* otherwise) const;
  // The complete file; empty on failure.
  std::string Close();

 private:
  struct Memory;
  explicit TiffHandle(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// Reads the tags of GeoTags from a file, and writes them.
GeoTags TagsOf(TIFF* tiff);
void SetTags(TIFF* tiff, const GeoTags& tags);

}  // namespace fulldeck::imagery
#endif
