#include "collectives/kernels/reduce_kernel_table.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace fulldeck::collectives {
namespace {

constexpr int kVectorBytes = 16;

inline bool AnyBit(std::uint64_t __attribute__((vector_size(16))) bits) {
  return vmaxvq_u32((uint32x4_t)bits) != 0;
}

inline float32x4_t WidenHalves(const std::byte* from) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(from))));
}

inline float16x8_t NarrowToHalves(float32x4_t low, float32x4_t high) {
  return vcvt_high_f16_f32(vcvt_f16_f32(low), high);
}

}  // namespace
}  // namespace fulldeck::collectives

#define FULLDECK_KERNEL_CONVERTS_HALVES
#define FULLDECK_KERNEL_TABLE kNeonKernels
#include "collectives/kernels/reduce_kernel_body.inc"
#else
namespace fulldeck::collectives {
const KernelTable* const kNeonKernels = nullptr;
}
#endif
