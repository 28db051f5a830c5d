#include "collectives/kernels/reduce_kernel_table.h"

#if defined(__x86_64__) && defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace fulldeck::collectives {
namespace {

constexpr int kVectorBytes = 32;

inline bool AnyBit(std::uint64_t __attribute__((vector_size(32))) bits) {
  return _mm256_testz_si256((__m256i)bits, (__m256i)bits) == 0;
}

inline __m256 WidenHalves(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

inline __m256i NarrowToHalves(__m256 low, __m256 high) {
  return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace
}  // namespace fulldeck::collectives

#define FULLDECK_KERNEL_CONVERTS_HALVES
#define FULLDECK_KERNEL_TABLE kAvx2Kernels
#include "collectives/kernels/reduce_kernel_body.inc"
#else
namespace fulldeck::collectives {
const KernelTable* const kAvx2Kernels = nullptr;
}
#endif
