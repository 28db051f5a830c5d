// How a call accesses data that is not in host memory. The engine moves a tensor through its shared slots in chunks;
// with a Staging, the copies of one chunk can run while another chunk is reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/result.h"

namespace fulldeck::collectives {

// One tensor on a card during one call. All methods are called on the thread of the call. Tickets are 0 …
// kStagingTickets−1; a ticket is finished before it is used again, and copies of one direction finish in the order in
// which they were started.
inline constexpr int kStagingTickets = 8;
class Staging {
 public:
  virtual ~Staging() = default;
  // Starts copying `bytes` bytes at `offset` of the tensor into host memory that the group owns.
  virtual base::Result<void> StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, int ticket) = 0;
  // Waits until everything started with this ticket is in host memory.
  virtual base::Result<void> FinishIn(int ticket) = 0;
  virtual base::Result<void> StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes, int ticket) = 0;
  // Waits until the source of this ticket's copies may be overwritten.
  virtual base::Result<void> FinishOut(int ticket) = 0;

  // For a traced call: measure from now on how long copies take on the card. InTook and OutTook then return the time of
  // the last finished copy with this ticket; nullopt: it cannot be measured.
  virtual void Measure() {}
  virtual std::optional<base::Duration> InTook(int /*ticket*/) const { return std::nullopt; }
  virtual std::optional<base::Duration> OutTook(int /*ticket*/) const { return std::nullopt; }
};

// The location of a call's data: host memory, or a Staging.
struct Buffer {
  std::byte* host = nullptr;  // only read if it is an input
  Staging* staging = nullptr;

  static Buffer Host(const void* memory) { return {static_cast<std::byte*>(const_cast<void*>(memory)), nullptr}; }
  static Buffer Staged(Staging& staging) { return {nullptr, &staging}; }
};

}  // namespace fulldeck::collectives
