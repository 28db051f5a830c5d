// The first bytes of everything that crosses processes: who wrote it, in which version, how much follows. A reader that
// meets another version refuses, and says so; it never guesses.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace fulldeck::wire {

struct BytesHeader {
  char magic[8];          // names the format; not terminated
  std::uint32_t version;  // of that format; any change of meaning makes a new one
  std::uint32_t length;   // bytes that belong to it, counted as the format says
};
static_assert(sizeof(BytesHeader) == 16 && std::is_trivially_copyable_v<BytesHeader>);

BytesHeader MakeHeader(std::string_view magic, std::uint32_t version, std::uint32_t length);

// Refuses other formats, other versions and lengths above `limit`; `what` begins the message.
base::Result<void> CheckHeader(const BytesHeader& header, std::string_view magic, std::uint32_t version,
                               std::uint32_t limit, std::string_view what);

}  // namespace fulldeck::wire
