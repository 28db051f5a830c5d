// Reads cards through a library whose C interface is NVML's, or a copy of it: one implementation, with one table per
// vendor. Not for libraries that only look similar: Enflame's newer EFML has NVML's function names but its own
// structs.
#pragma once

#include <memory>

#include "base/dynamic_library.h"
#include "base/result.h"
#include "device/libraries/library_reader.h"

namespace fulldeck::device {

struct NvmlShape {
  const char* library;          // its name, in messages and in SourceReading::source
  const char* prefix;           // of the symbols: "nvml" and "DeviceGetName"
  const char* version_symbol;   // the symbol whose name does not follow from the prefix
  const char* device_node;      // "/dev/nvidia", before the minor number
  double watts_per_power_unit;  // NVML reports milliwatts
  // DeviceGetMemoryInfo_v2 is known to take NVML's struct and to exclude reserved memory.
  bool has_memory_v2;
};

inline constexpr NvmlShape kNvml = {"NVML", "nvml", "nvmlSystemGetNVMLVersion", "/dev/nvidia", 0.001, true};

// Iluvatar CoreX (/usr/local/corex/lib64/libixml.so) exports NVML's own names and structs, but reports power in
// watts. An XML parser with the same file name is common: it lacks nvmlInit_v2 and is rejected.
inline constexpr NvmlShape kIxml = {"IXML", "nvml", "nvmlSystemGetNVMLVersion", "/dev/iluvatar", 1.0, false};

// Only initialization, count and handles are required. Any other function may be missing or fail, and its value is
// then absent. A card without a handle is shown by its index, with a note. `shape` must outlive the reader.
base::Result<std::unique_ptr<LibraryReader>> OpenNvmlShaped(base::DynamicLibrary library, const NvmlShape& shape);

}  // namespace fulldeck::device
