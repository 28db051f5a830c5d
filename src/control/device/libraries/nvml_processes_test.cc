#include "device/libraries/nvml_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace fulldeck::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A library that writes `count` entries of `entry_size` bytes: process 100 + i with i bytes.
struct Library {
  std::size_t entry_size;
  unsigned count;
  bool fills_all_entries = false;
};

int List(void* device, unsigned int* count, void* entries) {
  const auto* library = static_cast<Library*>(device);
  const unsigned room = *count;
  *count = library->count;
  if (room < library->count) return 7;
  auto* bytes = static_cast<unsigned char*>(entries);
  if (library->fills_all_entries) std::memset(bytes, 0, room * library->entry_size);
  for (unsigned i = 0; i < library->count; ++i, bytes += library->entry_size) {
    const unsigned int pid = 100 + i;
    const unsigned long long memory = i;
    std::memset(bytes, 0xff, library->entry_size);
    std::memcpy(bytes, &pid, sizeof pid);
    std::memcpy(bytes + 8, &memory, sizeof memory);
  }
  return 0;
}

class NvmlProcesses : public ::testing::Test {
 protected:
  std::vector<std::string> notes;
  AnswerCheck check{"NVML", &notes};
};

TEST_F(NvmlProcesses, AreReadWhicheverOfTheThreeSizesTheirEntriesHave) {
  for (const std::size_t entry_size : {16, 24, 32}) {
    for (const bool fills_all_entries : {false, true}) {
      for (const unsigned count : {1u, 2u, 3u, 63u, 64u, 65u, 1000u}) {
        SCOPED_TRACE(std::to_string(count) + " entries of " + std::to_string(entry_size) + " bytes");
        Library library{entry_size, count, fills_all_entries};
        const auto processes = ReadNvmlProcesses(List, &library, check);
        ASSERT_TRUE(processes.has_value());
        ASSERT_EQ(processes->size(), count);
        for (unsigned i = 0; i < count; ++i) {
          ASSERT_EQ((*processes)[i].pid, static_cast<int>(100 + i));
          ASSERT_EQ((*processes)[i].memory_bytes, i);
        }
      }
    }
  }
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(NvmlProcesses, AreNoneOnAnIdleCard) {
  Library library{24, 0};
  const auto processes = ReadNvmlProcesses(List, &library, check);
  ASSERT_TRUE(processes.has_value());
  EXPECT_THAT(*processes, IsEmpty());
}

TEST_F(NvmlProcesses, AreAbsentWhenTheirEntriesHaveASizeThatIsNotKnown) {
  Library library{40, 3};
  EXPECT_FALSE(ReadNvmlProcesses(List, &library, check).has_value());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("in a form that is not known")));
}

TEST_F(NvmlProcesses, AreAbsentWhenTheLibraryNeverHasEnoughRoom) {
  const auto never = [](void*, unsigned int*, void*) { return 7; };
  EXPECT_FALSE(ReadNvmlProcesses(never, nullptr, check).has_value());
}

TEST_F(NvmlProcesses, AreAbsentWhenTheCardDoesNotSupportIt) {
  const auto not_supported = [](void*, unsigned int*, void*) { return 3; };
  EXPECT_FALSE(ReadNvmlProcesses(not_supported, nullptr, check).has_value());
  EXPECT_THAT(notes, IsEmpty());
}

}  // namespace
}  // namespace fulldeck::device
