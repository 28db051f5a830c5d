// How much memory of its device a rank holds, and how to release torch's cached memory.
//
// On a card the values come from torch's allocator for it. If an allocator does not report them (a vendor's own), they
// are absent, which is not zero. On the CPU they are those of the process.
//
// A Session reports the values to the rank board during training. With SessionOptions::memory_watermark it releases
// caches when more than that share of the device is in use.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "fulldeck/error.h"

namespace fulldeck {

// All in bytes.
struct MemoryFigures {
  std::optional<std::uint64_t> used;      // by tensors; CPU: resident pages
  std::optional<std::uint64_t> peak;      // maximum of `used`
  std::optional<std::uint64_t> reserved;  // taken from the device, including cached memory; CPU: as `used`
  std::optional<std::uint64_t> total;     // of the device
  std::optional<std::uint64_t> free;      // on the device, for any process

  // "31.0 GiB used (peak 31.5 GiB), 31.9 GiB reserved, 0.1 GiB of 32.0 GiB free"; unknown values are omitted.
  FULLDECK_RUNTIME_API std::string ToText() const;
};

// Takes some microseconds on the CPU and on most cards. Does not throw.
FULLDECK_RUNTIME_API MemoryFigures ReadMemory(c10::Device device);

// Returns the cached memory of the device's allocator (and of the host's) to the system. May wait for the device.
// False: the allocator cannot do this.
FULLDECK_RUNTIME_API bool ReleaseCaches(c10::Device device);

// Whether the error means out of memory: torch's OutOfMemoryError, std::bad_alloc, and errors of vendors' libraries,
// which are recognized by their text. `text`: receives the error's message on one line; may be null.
FULLDECK_RUNTIME_API bool IsOutOfMemory(const std::exception_ptr& error, std::string* text = nullptr);

}  // namespace fulldeck
