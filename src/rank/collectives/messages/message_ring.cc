#include "collectives/messages/message_ring.h"

#include <algorithm>
#include <cstring>

namespace fulldeck::collectives {

RingWriter::RingWriter(std::byte* memory)
    : ring_(reinterpret_cast<MessageRing*>(memory)),
      written_(ring_->written.load(std::memory_order_relaxed)),      // own counter
      known_taken_(ring_->taken.load(std::memory_order_acquire)) {}  // pairs with the store in Release

std::optional<std::uint64_t> RingWriter::Room(std::uint64_t enough) {
  if (kRingCapacity - (written_ - known_taken_) < enough) {
    // Pairs with the store in Release: what the reader has copied out may be overwritten.
    const std::uint64_t taken = ring_->taken.load(std::memory_order_acquire);
    if (taken < known_taken_ || taken > written_) return std::nullopt;
    known_taken_ = taken;
  }
  return kRingCapacity - (written_ - known_taken_);
}

std::optional<std::uint64_t> RingWriter::RoomOrFlagWaiting(std::uint64_t enough) {
  const auto room = Room(enough);
  if (!room || *room >= enough) {
    if (flagged_waiting_) {
      // A reader that still reads 1 wakes the writer in vain.
      ring_->sender_waits.store(0, std::memory_order_relaxed);
      flagged_waiting_ = false;
    }
    return room;
  }
  // This store and the load after it, and the store and the load in Release, are in one total order: either the reader
  // sees that this side waits, or this side sees what the reader took. (As in waiting.h.)
  ring_->sender_waits.store(1, std::memory_order_seq_cst);
  flagged_waiting_ = true;
  const std::uint64_t taken = ring_->taken.load(std::memory_order_seq_cst);
  if (taken < known_taken_ || taken > written_) return std::nullopt;
  known_taken_ = taken;
  return kRingCapacity - (written_ - known_taken_);
}

void RingWriter::Put(const void* data, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t at = written_ % kRingCapacity;
  const std::uint64_t first = std::min(bytes, kRingCapacity - at);
  std::memcpy(ring_->data + at, data, first);
  if (first < bytes) std::memcpy(ring_->data, static_cast<const std::byte*>(data) + first, bytes - first);
  written_ += bytes;
}

void RingWriter::Publish() {
  ring_->written.store(written_, std::memory_order_release);  // pairs with the load in Available
}

RingReader::RingReader(std::byte* memory)
    : ring_(reinterpret_cast<MessageRing*>(memory)),
      taken_(ring_->taken.load(std::memory_order_relaxed)),  // own counter
      known_written_(taken_) {}

std::optional<std::uint64_t> RingReader::Available(std::uint64_t enough) {
  if (known_written_ - taken_ < enough) {
    // Pairs with the store in Publish: the bytes up to this count are visible.
    const std::uint64_t written = ring_->written.load(std::memory_order_acquire);
    if (written < known_written_ || written - taken_ > kRingCapacity) return std::nullopt;
    known_written_ = written;
  }
  return known_written_ - taken_;
}

void RingReader::Take(void* data, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t at = taken_ % kRingCapacity;
  const std::uint64_t first = std::min(bytes, kRingCapacity - at);
  std::memcpy(data, ring_->data + at, first);
  if (first < bytes) std::memcpy(static_cast<std::byte*>(data) + first, ring_->data, bytes - first);
  taken_ += bytes;
}

bool RingReader::Release() {
  ring_->taken.store(taken_, std::memory_order_seq_cst);  // pairs with the loads in Room and RoomOrFlagWaiting
  return ring_->sender_waits.load(std::memory_order_seq_cst) != 0;  // pairs with the store in RoomOrFlagWaiting
}

}  // namespace fulldeck::collectives
