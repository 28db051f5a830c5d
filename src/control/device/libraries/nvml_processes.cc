#include "device/libraries/nvml_processes.h"

#include <cstring>

namespace fulldeck::device {
namespace {

constexpr int kBufferTooSmall = 7;
constexpr unsigned kFirstCapacity = 64;
constexpr unsigned kLargestCapacity = 65536;
constexpr std::uint64_t kMemoryNotAvailable = ~std::uint64_t{0};

// The start of every entry, whatever its size.
struct EntryStart {
  unsigned int pid;
  unsigned long long used_memory_bytes;
};
static_assert(sizeof(EntryStart) == 16, "the oldest entry, as NVML has had it since its first version");

// The oldest entry; with the MIG instances (two 32-bit numbers); and with protected memory (64 bits) in addition.
constexpr std::size_t kEntrySizes[] = {16, 24, 32};
constexpr std::size_t kRoomPerEntry = 64;
constexpr unsigned char kUntouched = 0xa5;

std::size_t BytesWritten(const std::vector<unsigned char>& buffer) {
  std::size_t size = buffer.size();
  while (size > 0 && buffer[size - 1] == kUntouched) --size;
  return size;
}

// All sizes end with a number that is written completely and whose top byte is 00 or ff, so the last entry ends where
// the untouched bytes begin. Some libraries fill all entries of the buffer.
std::optional<std::size_t> EntrySize(std::size_t bytes_written, unsigned count, unsigned capacity) {
  for (const unsigned entries : {count, capacity}) {
    for (const std::size_t size : kEntrySizes) {
      if (size * entries == bytes_written) return size;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<ProcessOnCard>> ReadNvmlProcesses(NvmlProcessCall* call, void* device,
                                                            const AnswerCheck& check) {
  std::vector<unsigned char> buffer;
  unsigned capacity = kFirstCapacity;
  unsigned count = 0;
  int code = kBufferTooSmall;
  for (; code == kBufferTooSmall && capacity <= kLargestCapacity; capacity *= 2) {
    buffer.assign(capacity * kRoomPerEntry, kUntouched);
    count = capacity;
    code = call(device, &count, buffer.data());
    if (code != kBufferTooSmall) break;
  }
  if (code != 0) return std::nullopt;

  std::vector<ProcessOnCard> processes;
  if (count == 0) return processes;
  const auto size = count <= capacity ? EntrySize(BytesWritten(buffer), count, capacity) : std::nullopt;
  if (!size) {
    check.Note("lists processes in a form that is not known; they are left out.");
    return std::nullopt;
  }
  for (unsigned i = 0; i < count; ++i) {
    EntryStart entry;
    std::memcpy(&entry, buffer.data() + i * *size, sizeof entry);
    const auto pid = check.ProcessId(entry.pid);
    if (!pid) continue;
    ProcessOnCard process;
    process.pid = *pid;
    if (entry.used_memory_bytes != kMemoryNotAvailable) process.memory_bytes = entry.used_memory_bytes;
    processes.push_back(process);
  }
  return processes;
}

}  // namespace fulldeck::device
