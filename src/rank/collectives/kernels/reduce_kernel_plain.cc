// Runs on every CPU of the architecture: SSE2 on x86, Advanced SIMD on ARM, both without float16 conversions.
#include <cstddef>
#include <cstdint>

#include "collectives/kernels/reduce_kernel_table.h"

namespace fulldeck::collectives {
namespace {

constexpr int kVectorBytes = 16;

inline bool AnyBit(std::uint64_t __attribute__((vector_size(16))) bits) {
  return (bits[0] | bits[1]) != 0;
}

}  // namespace
}  // namespace fulldeck::collectives

#define FULLDECK_KERNEL_TABLE kPlainKernels
#include "collectives/kernels/reduce_kernel_body.inc"
