#include <utility>

#include "device/libraries/library_reader.h"
#include "device/libraries/nvml_shaped.h"

namespace fulldeck::device {

base::Result<std::unique_ptr<LibraryReader>> OpenNvml(base::DynamicLibrary library) {
  return OpenNvmlShaped(std::move(library), kNvml);
}

base::Result<std::unique_ptr<LibraryReader>> OpenIxml(base::DynamicLibrary library) {
  return OpenNvmlShaped(std::move(library), kIxml);
}

}  // namespace fulldeck::device
