// One direction between two ranks: a ring of bytes in shared memory with one writer and one reader, and the header
// before each message in it. messages.h decides which operation gets a message.
//
// A message is its header followed by its bytes, wrapping around at the end of the ring; a message longer than the ring
// goes through it while it is read. Nothing that the other side wrote is trusted: invalid counters and headers are
// reported to the caller. A side that dies in the middle leaves valid counters and a message that never completes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/messages/messages.h"

namespace fulldeck::collectives {

inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 56;

// All zero is an empty ring. The cache lines of the two sides are separate, and so are those that a CPU prefetches as a
// pair.
struct MessageRing {
  // Written by the sender.
  alignas(128) std::atomic<std::uint64_t> written;  // bytes since the start; stored by Publish, loaded by Available
  std::atomic<std::uint32_t> sender_waits;  // 1: it found no space; stored by RoomOrFlagWaiting, loaded by Release
  // Written by the receiver.
  alignas(128) std::atomic<std::uint64_t> taken;  // bytes since the start; stored by Release, loaded by Room

  alignas(128) std::byte data[kMessageRingBytes - 256];
};
static_assert(sizeof(MessageRing) == kMessageRingBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);

inline constexpr std::uint64_t kRingCapacity = sizeof(MessageRing::data);

struct MessageHead {
  std::uint32_t magic = 0;
  std::uint32_t number = 0;  // of the message in this direction, from 0: detects lost and duplicate messages
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(MessageHead) == 24);
inline constexpr std::uint32_t kMessageMagic = 0x4d444c46;  // "FLDM"

// The sender's side. Not thread safe.
class RingWriter {
 public:
  RingWriter() = default;
  explicit RingWriter(std::byte* memory);

  // Number of bytes that can be written now; nullopt if the reader's counter is invalid. Reads the reader's cache line
  // only if the known space is less than `enough`.
  std::optional<std::uint64_t> Room(std::uint64_t enough);
  // The same, after setting the flag that this side waits for space: if the space is still too small, Release of the
  // reader will return true when it has taken something.
  std::optional<std::uint64_t> RoomOrFlagWaiting(std::uint64_t enough);
  // At most the number of bytes returned by Room. The reader sees them after Publish.
  void Put(const void* data, std::uint64_t bytes);
  void Publish();

 private:
  MessageRing* ring_ = nullptr;
  std::uint64_t written_ = 0;
  std::uint64_t known_taken_ = 0;
  bool flagged_waiting_ = false;
};

// The receiver's side. Not thread safe.
class RingReader {
 public:
  RingReader() = default;
  explicit RingReader(std::byte* memory);

  // Number of bytes that can be read now; nullopt if the writer's counter is invalid. Reads the writer's cache line
  // only if the known number is less than `enough`.
  std::optional<std::uint64_t> Available(std::uint64_t enough);
  // At most the number of bytes returned by Available. Release frees the space.
  void Take(void* data, std::uint64_t bytes);
  // True: the writer waits for space and must be woken.
  bool Release();

 private:
  MessageRing* ring_ = nullptr;
  std::uint64_t taken_ = 0;
  std::uint64_t known_written_ = 0;
};

}  // namespace fulldeck::collectives
