// Copies between memory and slots.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::collectives {

// Past the caches: for data that nobody will find in them anyway, because there is more of it than they hold. A plain
// copy first reads every line that it is going to overwrite.
void CopyStreaming(std::byte* to, const std::byte* from, std::uint64_t bytes);

// Bytes of the last level of cache, or a guess where the system does not tell.
std::uint64_t LastLevelCacheBytes();

}  // namespace fulldeck::collectives
