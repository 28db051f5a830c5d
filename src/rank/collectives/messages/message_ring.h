// One direction between two ranks: a ring of bytes in shared memory with one writer and one reader, and the head that
// stands before each message in it. Who gets a message is messages.h.
//
// A message is its head and then its bytes, one behind the other, wrapping round at the end of the ring; one that is
// longer than the ring goes through it while it is read. Nothing is believed that the other side wrote: counters that
// cannot be and heads that are none are told to the caller. A side that dies in the middle leaves counters that are
// right and a message that never ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/messages/messages.h"

namespace fulldeck::collectives {

inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 56;

// All zero is an empty ring. The lines of the two sides are apart, and so are those that a processor fetches as a pair.
struct MessageRing {
  // The sender's line.
  alignas(128) std::atomic<std::uint64_t> written;  // bytes since the start; stored by Publish, loaded by Available
  std::atomic<std::uint32_t> sender_waits;  // 1: it found no room; stored by RoomOrFlagWaiting, loaded by Release
  // The receiver's line.
  alignas(128) std::atomic<std::uint64_t> taken;  // bytes since the start; stored by Release, loaded by Room

  alignas(128) std::byte data[kMessageRingBytes - 256];
};
static_assert(sizeof(MessageRing) == kMessageRingBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);

inline constexpr std::uint64_t kRingCapacity = sizeof(MessageRing::data);

struct MessageHead {
  std::uint32_t magic = 0;
  std::uint32_t number = 0;  // of the message in this direction, from 0: one that was lost or came twice shows
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

  // Bytes that can be put in now; nothing when the reader's counter is impossible. Looks at the reader's line only if
  // it does not know of `enough` already.
  std::optional<std::uint64_t> Room(std::uint64_t enough);
  // The same after having told the reader that this side waits for room: where it is still too little, the reader will
  // say so (Release gives true) when it has taken something.
  std::optional<std::uint64_t> RoomOrFlagWaiting(std::uint64_t enough);
  // At most what Room gave. The reader sees it after Publish.
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

  // Bytes that lie there; nothing when the writer's counter is impossible. Looks at the writer's line only if it does
  // not know of `enough` already.
  std::optional<std::uint64_t> Available(std::uint64_t enough);
  // At most what Available gave. The place is free after Release.
  void Take(void* data, std::uint64_t bytes);
  // True: the writer waits for room and must be woken.
  bool Release();

 private:
  MessageRing* ring_ = nullptr;
  std::uint64_t taken_ = 0;
  std::uint64_t known_written_ = 0;
};

}  // namespace fulldeck::collectives
