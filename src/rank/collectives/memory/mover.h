// Moves pieces between one buffer of a call and the slots: at once where the buffer is in host memory, by copies that
// run in the background where it is on a card. A mover that goes away has no copy under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "collectives/memory/staging.h"

namespace fulldeck::collectives {

class Mover {
 public:
  explicit Mover(Buffer buffer) : buffer_(buffer) {}
  ~Mover();
  Mover(Mover&& other) noexcept : buffer_(other.buffer_), in_(other.in_), out_(other.out_) {
    other.in_ = other.out_ = 0;
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  Mover& operator=(Mover&&) = delete;

  const std::byte* host() const { return buffer_.host; }
  std::byte* host() { return buffer_.host; }
  bool on_card() const { return buffer_.staging != nullptr; }

  // Between StartIn and FinishIn of a piece nobody else writes to `to`. In host memory StartIn does all.
  base::Result<void> StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece);
  base::Result<void> FinishIn(std::uint64_t piece);
  base::Result<void> StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes, std::uint64_t piece);
  base::Result<void> FinishOut(std::uint64_t piece);

  // See Staging. In host memory nothing is told: the copy is over when its Start returns.
  void Measure() {
    if (on_card()) buffer_.staging->Measure();
  }
  std::optional<base::Duration> InTook(std::uint64_t piece) const {
    return on_card() ? buffer_.staging->InTook(Ticket(piece)) : std::nullopt;
  }
  std::optional<base::Duration> OutTook(std::uint64_t piece) const {
    return on_card() ? buffer_.staging->OutTook(Ticket(piece)) : std::nullopt;
  }

 private:
  static int Ticket(std::uint64_t piece) { return static_cast<int>(piece % kStagingTickets); }

  Buffer buffer_;
  unsigned in_ = 0;  // tickets under way, a bit each
  unsigned out_ = 0;
};

}  // namespace fulldeck::collectives
