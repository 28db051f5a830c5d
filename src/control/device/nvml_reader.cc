#include <utility>

#include "device/library_reader.h"
#include "device/nvml_shaped.h"

namespace fulldeck::device {

base::Result<std::unique_ptr<LibraryReader>> OpenNvml(base::DynamicLibrary library) {
  return OpenNvmlShaped(std::move(library), kNvml);
}

base::Result<std::unique_ptr<LibraryReader>> OpenIxml(base::DynamicLibrary library) {
  return OpenNvmlShaped(std::move(library), kIxml);
}

}  // namespace fulldeck::device
