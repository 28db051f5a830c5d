#include "checkpoint/staging_buffer.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"

namespace fulldeck::checkpoint {
namespace {

constexpr std::uint64_t kHugePage = 2 << 20;
// Below this, starting a thread takes longer than the copy.
constexpr std::uint64_t kWorthAThread = 4 << 20;

// Calls body(first, last) for equal ranges of [0, count) on several threads.
template <typename Body>
void ParallelFor(std::uint64_t count, std::uint64_t grain, const Body& body) {
  const std::uint64_t parts = std::clamp<std::uint64_t>(count / grain, 1, UsefulThreads(8));
  const auto begin = [&](std::uint64_t part) { return count / parts * part + std::min(part, count % parts); };
  std::vector<std::thread> threads;
  for (std::uint64_t part = 1; part < parts; ++part) {
    threads.emplace_back([&, part] {
      pthread_setname_np(pthread_self(), "fulldeck-copy");
      body(begin(part), begin(part + 1));
    });
  }
  body(0, begin(1));
  for (std::thread& thread : threads) thread.join();
}

// memcpy uses normal stores up to sizes that a tensor rarely has; non-temporal stores save fetching each cache line
// before it is overwritten.
void CopyPastCaches(unsigned char* to, const unsigned char* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (bytes >= 64 << 10) {
    const std::size_t lead = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
    std::memcpy(to, from, lead);
    to += lead;
    from += lead;
    bytes -= lead;
    for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* target = reinterpret_cast<__m128i*>(to);
      _mm_prefetch(reinterpret_cast<const char*>(from + 1024), _MM_HINT_NTA);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace

StagingBuffer::~StagingBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

base::Result<void> StagingBuffer::Reserve(std::uint64_t bytes) {
  if (bytes <= size_) return {};
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
  const std::uint64_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* mapped = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return base::ErrnoError("memory for a copy of the state (" + base::FormatByteSize(bytes) + ")");
  // Forked children do not use it; without MADV_DONTFORK, each page that is written again would be copied for them.
  // Kernels without huge pages reject the second call; both are only hints.
  madvise(mapped, rounded, MADV_DONTFORK);
  madvise(mapped, rounded, MADV_HUGEPAGE);
  data_ = static_cast<unsigned char*>(mapped);
  size_ = rounded;
  ParallelFor(rounded, kHugePage, [this](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t at = first; at < last; at += 4096) static_cast<volatile unsigned char*>(data_)[at] = 0;
  });
  return {};
}

void CopyAll(const std::vector<CopyJob>& jobs) {
  std::uint64_t total = 0;
  for (const CopyJob& job : jobs) total += job.bytes;
  ParallelFor(total, kWorthAThread, [&](std::uint64_t first, std::uint64_t last) {
    std::uint64_t at = 0;
    for (const CopyJob& job : jobs) {
      const std::uint64_t begin = std::max(first, at), end = std::min(last, at + job.bytes);
      if (begin < end) {
        CopyPastCaches(static_cast<unsigned char*>(job.to) + (begin - at),
                       static_cast<const unsigned char*>(job.from) + (begin - at),
                       static_cast<std::size_t>(end - begin));
      }
      at += job.bytes;
      if (at >= last) break;
    }
  });
}

}  // namespace fulldeck::checkpoint
