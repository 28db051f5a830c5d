// Copies between memory and slots.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::collectives {

// Bypasses the caches: for more data than the caches hold, which would be evicted before it is used again. A plain copy
// first reads every cache line that it overwrites.
void CopyStreaming(std::byte* to, const std::byte* from, std::uint64_t bytes);

// Bytes of the last-level cache, or a guess if the system does not report it.
std::uint64_t LastLevelCacheBytes();

}  // namespace fulldeck::collectives
