#include "collectives/memory/copying.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fulldeck::collectives {

std::uint64_t LastLevelCacheBytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<std::uint64_t>(bytes);
#endif
  return std::uint64_t{32} << 20;
}

#if defined(__x86_64__)
void CopyStreaming(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t kLineBytes = 64;
  const std::uint64_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::uint64_t before = std::min(bytes, misaligned == 0 ? 0 : kLineBytes - misaligned);
  std::memcpy(to, from, before);
  std::uint64_t at = before;
  for (; at + kLineBytes <= bytes; at += kLineBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
  // Streaming stores are not ordered with any other store.
  _mm_sfence();
}
#else
void CopyStreaming(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace fulldeck::collectives
