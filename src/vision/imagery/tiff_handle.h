// libtiff on memory, silent: what it would print is kept for the error. Knows GeoTIFF's tags. A build without libtiff
// has none of it.
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
  // nullptr from get(): it could not be opened, and error() says why. `bytes` live longer.
  static TiffHandle Reading(std::string_view bytes);
  // What is written is in written() after Close. `large`: more than classic TIFF can hold.
  static TiffHandle Writing(bool large);
  ~TiffHandle();
  TiffHandle(TiffHandle&&) noexcept;
  TiffHandle& operator=(TiffHandle&&) = delete;

  TIFF* get() const;
  // The first complaint, or `otherwise`.
  base::Error error(const char* otherwise) const;
  // The file as written; empty when it failed.
  std::string Close();

 private:
  struct Memory;
  explicit TiffHandle(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// The tags of GeoTags that a file has, and back.
GeoTags TagsOf(TIFF* tiff);
void SetTags(TIFF* tiff, const GeoTags& tags);

}  // namespace fulldeck::imagery
#endif
