#include "collectives/memory/staged_copy.h"

#include <cstring>

namespace fulldeck::collectives {

StagedCopy::~StagedCopy() {
  // Copies are in progress here only after a failed call: their results do not matter.
  for (int ticket = 0; ticket < kStagingTickets; ++ticket) {
    if ((in_ >> ticket & 1) != 0) (void)buffer_.staging->FinishIn(ticket);
    if ((out_ >> ticket & 1) != 0) (void)buffer_.staging->FinishOut(ticket);
  }
}

base::Result<void> StagedCopy::StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, std::uint64_t chunk) {
  if (bytes == 0) return {};
  if (!on_card()) {
    std::memcpy(to, buffer_.host + offset, bytes);
    return {};
  }
  in_ |= 1u << Ticket(chunk);
  return buffer_.staging->StartIn(to, offset, bytes, Ticket(chunk));
}

base::Result<void> StagedCopy::FinishIn(std::uint64_t chunk) {
  const unsigned bit = 1u << Ticket(chunk);
  if ((in_ & bit) == 0) return {};
  in_ &= ~bit;
  return buffer_.staging->FinishIn(Ticket(chunk));
}

base::Result<void> StagedCopy::StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes,
                                        std::uint64_t chunk) {
  if (bytes == 0) return {};
  if (!on_card()) {
    std::memcpy(buffer_.host + offset, from, bytes);
    return {};
  }
  out_ |= 1u << Ticket(chunk);
  return buffer_.staging->StartOut(offset, from, bytes, Ticket(chunk));
}

base::Result<void> StagedCopy::FinishOut(std::uint64_t chunk) {
  const unsigned bit = 1u << Ticket(chunk);
  if ((out_ & bit) == 0) return {};
  out_ &= ~bit;
  return buffer_.staging->FinishOut(Ticket(chunk));
}

}  // namespace fulldeck::collectives
