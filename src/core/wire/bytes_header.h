// The header of everything that crosses processes: format, version, and how many bytes follow. A reader that finds
// another version fails with an error; it never guesses.
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
  std::uint32_t version;  // of that format; any change of meaning increments it
  std::uint32_t length;   // number of bytes, counted as the format defines
};
static_assert(sizeof(BytesHeader) == 16 && std::is_trivially_copyable_v<BytesHeader>);

BytesHeader MakeHeader(std::string_view magic, std::uint32_t version, std::uint32_t length);

// Rejects other formats, other versions and lengths above `limit`; the message starts with `what`.
base::Result<void> CheckHeader(const BytesHeader& header, std::string_view magic, std::uint32_t version,
                               std::uint32_t limit, std::string_view what);

}  // namespace fulldeck::wire
