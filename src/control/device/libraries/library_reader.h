// Reads cards through a vendor's management library. Runs inside the helper process only (vendor_helper.h): such
// libraries install signal handlers, print, hang and crash.
#pragma once

#include <memory>
#include <string>

#include "base/dynamic_library.h"
#include "base/result.h"
#include "device/card_reading.h"

namespace fulldeck::device {

class LibraryReader {
 public:
  virtual ~LibraryReader() = default;
  // Everything that the library reports now. May be called repeatedly.
  virtual base::Result<SourceReading> Read() = 0;
};

// Each function opens one vendor's interface: looks up the symbols and initializes. The error names the missing
// symbol or describes what the library returned.
base::Result<std::unique_ptr<LibraryReader>> OpenNvml(base::DynamicLibrary library);  // NVIDIA: nvml_reader.cc
base::Result<std::unique_ptr<LibraryReader>> OpenIxml(base::DynamicLibrary library);  // Iluvatar: nvml_reader.cc
base::Result<std::unique_ptr<LibraryReader>> OpenEfml(
    base::DynamicLibrary library);  // Enflame, by index: efml_reader.cc
base::Result<std::unique_ptr<LibraryReader>> OpenDcmi(base::DynamicLibrary library);  // Ascend: dcmi_reader.cc

}  // namespace fulldeck::device
