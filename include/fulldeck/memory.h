// How much memory of its device a rank holds, and letting go of what torch keeps for later.
//
// On a card the figures are those of torch's allocator for it; an allocator that does not tell them (a vendor's own)
// gives nothing, which is not zero. On the host they are those of the process.
//
// A Session tells the rank board the figures as the training goes, and with SessionOptions::memory_watermark lets go of
// caches when more than that share of the device is taken.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "fulldeck/error.h"

namespace fulldeck {

// Bytes.
struct MemoryFigures {
  std::optional<std::uint64_t> used;      // by tensors; on the host: resident pages
  std::optional<std::uint64_t> peak;      // the most that `used` was
  std::optional<std::uint64_t> reserved;  // taken from the device, with what is kept for later; on the host as `used`
  std::optional<std::uint64_t> total;     // that the device has
  std::optional<std::uint64_t> free;      // on the device, for anybody

  // "31.0 GiB used (peak 31.5 GiB), 31.9 GiB reserved, 0.1 GiB of 32.0 GiB free"; what is not known is left out.
  FULLDECK_RUNTIME_API std::string ToText() const;
};

// Some microseconds on the host and on most cards. Throws nothing.
FULLDECK_RUNTIME_API MemoryFigures ReadMemory(c10::Device device);

// Gives back what the device's allocator (and the host's) keeps for later. May wait for the device. False: the
// allocator cannot.
FULLDECK_RUNTIME_API bool ReleaseCaches(c10::Device device);

// Was it for want of memory? torch's OutOfMemoryError, std::bad_alloc, and the errors of vendors' libraries that say so
// in words. `text`: may be null, and gets what the error says, on one line.
FULLDECK_RUNTIME_API bool IsOutOfMemory(const std::exception_ptr& error, std::string* text = nullptr);

}  // namespace fulldeck
