#include "collectives/memory/mover.h"

#include <cstring>

namespace fulldeck::collectives {

Mover::~Mover() {
  // Only a call that failed comes here with copies under way: what became of them matters no more.
  for (int ticket = 0; ticket < kStagingTickets; ++ticket) {
    if ((in_ >> ticket & 1) != 0) (void)buffer_.staging->FinishIn(ticket);
    if ((out_ >> ticket & 1) != 0) (void)buffer_.staging->FinishOut(ticket);
  }
}

base::Result<void> Mover::StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece) {
  if (bytes == 0) return {};
  if (!on_card()) {
    std::memcpy(to, buffer_.host + offset, bytes);
    return {};
  }
  in_ |= 1u << Ticket(piece);
  return buffer_.staging->StartIn(to, offset, bytes, Ticket(piece));
}

base::Result<void> Mover::FinishIn(std::uint64_t piece) {
  const unsigned bit = 1u << Ticket(piece);
  if ((in_ & bit) == 0) return {};
  in_ &= ~bit;
  return buffer_.staging->FinishIn(Ticket(piece));
}

base::Result<void> Mover::StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes,
                                   std::uint64_t piece) {
  if (bytes == 0) return {};
  if (!on_card()) {
    std::memcpy(buffer_.host + offset, from, bytes);
    return {};
  }
  out_ |= 1u << Ticket(piece);
  return buffer_.staging->StartOut(offset, from, bytes, Ticket(piece));
}

base::Result<void> Mover::FinishOut(std::uint64_t piece) {
  const unsigned bit = 1u << Ticket(piece);
  if ((out_ & bit) == 0) return {};
  out_ &= ~bit;
  return buffer_.staging->FinishOut(Ticket(piece));
}

}  // namespace fulldeck::collectives
