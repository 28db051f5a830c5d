// Opens a fake vendor library inside the test process. Only for fakes without faults; the others need the helper
// process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/dynamic_library.h"
#include "base/result.h"
#include "device/libraries/library_reader.h"

namespace fulldeck::testing {

inline std::string FakeLibraryPath(const std::string& variant, const std::string& file_name) {
  return std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/" + variant + "/" + file_name;
}

// The first reading, or the error of the first step that fails.
template <typename Open>
base::Result<device::SourceReading> ReadFakeLibrary(const std::string& path, Open open) {
  auto library = base::DynamicLibrary::Open(path);
  if (!library) return library.error();
  auto reader = open(std::move(*library));
  if (!reader) return reader.error();
  return (*reader)->Read();
}

// For a library that must respond: an error fails the test.
template <typename Open>
device::SourceReading MustReadFakeLibrary(const std::string& path, Open open) {
  auto reading = ReadFakeLibrary(path, open);
  EXPECT_TRUE(reading.ok()) << reading.error().message;
  return reading.ok() ? *reading : device::SourceReading{};
}

}  // namespace fulldeck::testing
