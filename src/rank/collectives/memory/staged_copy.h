// Moves chunks between one buffer of a call and the slots: synchronously if the buffer is in host memory, by background
// copies if it is on a card. The destructor waits for copies in progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "collectives/memory/staging.h"

namespace fulldeck::collectives {

class StagedCopy {
 public:
  explicit StagedCopy(Buffer buffer) : buffer_(buffer) {}
  ~StagedCopy();
  StagedCopy(StagedCopy&& other) noexcept : buffer_(other.buffer_), in_(other.in_), out_(other.out_) {
    other.in_ = other.out_ = 0;
  }
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;
  StagedCopy& operator=(StagedCopy&&) = delete;

  const std::byte* host() const { return buffer_.host; }
  std::byte* host() { return buffer_.host; }
  bool on_card() const { return buffer_.staging != nullptr; }

  // Between StartIn and FinishIn of a chunk, no other thread writes to `to`. In host memory, StartIn copies everything.
  base::Result<void> StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, std::uint64_t chunk);
  base::Result<void> FinishIn(std::uint64_t chunk);
  base::Result<void> StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes, std::uint64_t chunk);
  base::Result<void> FinishOut(std::uint64_t chunk);

  // See Staging. In host memory there are no times: the copy is complete when its Start returns.
  void Measure() {
    if (on_card()) buffer_.staging->Measure();
  }
  std::optional<base::Duration> InTook(std::uint64_t chunk) const {
    return on_card() ? buffer_.staging->InTook(Ticket(chunk)) : std::nullopt;
  }
  std::optional<base::Duration> OutTook(std::uint64_t chunk) const {
    return on_card() ? buffer_.staging->OutTook(Ticket(chunk)) : std::nullopt;
  }

 private:
  static int Ticket(std::uint64_t chunk) { return static_cast<int>(chunk % kStagingTickets); }

  Buffer buffer_;
  unsigned in_ = 0;  // tickets in progress, one bit each
  unsigned out_ = 0;
};

}  // namespace fulldeck::collectives
