#include "collectives/kernels/reduce_kernel_table.h"

#if defined(__x86_64__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace fulldeck::collectives {
namespace {

constexpr int kVectorBytes = 64;

inline bool AnyBit(std::uint64_t __attribute__((vector_size(64))) bits) {
  return _mm512_test_epi64_mask((__m512i)bits, (__m512i)bits) != 0;
}

// Uses the masked forms with all lanes set: for the unmasked ones, g++ 12 warns about uninitialized variables.
constexpr __mmask16 kAll = 0xffff;

inline __m512 WidenHalves(const std::byte* from) {
  return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline __m512i NarrowToHalves(__m512 low, __m512 high) {
  const __m256i low_halves = _mm512_maskz_cvtps_ph(kAll, low, _MM_FROUND_TO_NEAREST_INT);
  const __m256i high_halves = _mm512_maskz_cvtps_ph(kAll, high, _MM_FROUND_TO_NEAREST_INT);
  return _mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(low_halves), high_halves, 1);
}

}  // namespace
}  // namespace fulldeck::collectives

#define FULLDECK_KERNEL_CONVERTS_HALVES
#define FULLDECK_KERNEL_TABLE kAvx512Kernels
#include "collectives/kernels/reduce_kernel_body.inc"
#else
namespace fulldeck::collectives {
const KernelTable* const kAvx512Kernels = nullptr;
}
#endif
