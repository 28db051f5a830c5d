// The three small PTX kernels that probe a CUDA card. Every driver since CUDA 9 can translate them for every card since
// 2014. The C++ functions next to them compute the expected values: a card that returns others is faulty. Checked with
// ptxas for sm_75 to sm_120.
#pragma once

#include <cmath>
#include <cstdint>

namespace fulldeck::doctor {

// Maps integers to pseudorandom integers.
constexpr std::uint32_t Mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

// The value that fulldeck_fill writes at `index` and fulldeck_check expects there.
constexpr std::uint32_t PatternAt(std::uint64_t index, std::uint32_t seed) {
  return Mix(static_cast<std::uint32_t>(index) ^ static_cast<std::uint32_t>(index >> 32) ^ seed);
}

struct Computed {
  std::uint32_t whole;
  float real;
};

// The expected result of thread `index` of fulldeck_compute: integers and fused multiply-adds, exact to the last bit.
inline Computed ComputedBy(std::uint32_t index, std::uint32_t steps) {
  Computed value{Mix(index), static_cast<float>(index & 1023U)};
  for (std::uint32_t step = 0; step < steps; ++step) {
    value.whole = value.whole * 1664525U + 1013904223U;
    value.real = std::fmaf(value.real, 0.75F, static_cast<float>(value.whole >> 24));
  }
  return value;
}

// fulldeck_fill(u32* words, u64 count, u32 seed)
// fulldeck_check(const u32* words, u64 count, u32 seed, u64 found[2])   adds the mismatches to found[0], keeps
//                                                                       the smallest index of one in found[1]
// fulldeck_compute(u32* whole, f32* real, u32 count, u32 steps)         one thread per index
inline constexpr char kCardKernels[] = R"ptx(
.version 6.0
.target sm_50
.address_size 64

.visible .entry fulldeck_fill(.param .u64 words, .param .u64 count, .param .u32 seed)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [words];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [count];
  ld.param.u32 %r1, [seed];
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %ctaid.x;
  mul.wide.u32 %rd3, %r3, %r2;
  mov.u32 %r4, %tid.x;
  cvt.u64.u32 %rd4, %r4;
  add.u64 %rd3, %rd3, %rd4;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %rd5, %r5, %r2;
fill_next:
  setp.ge.u64 %p1, %rd3, %rd2;
  @%p1 bra fill_end;
  shr.u64 %rd6, %rd3, 32;
  cvt.u32.u64 %r6, %rd3;
  cvt.u32.u64 %r7, %rd6;
  xor.b32 %r6, %r6, %r7;
  xor.b32 %r6, %r6, %r1;
  shr.u32 %r7, %r6, 16;
  xor.b32 %r6, %r6, %r7;
  mul.lo.u32 %r6, %r6, 0x7feb352d;
  shr.u32 %r7, %r6, 15;
  xor.b32 %r6, %r6, %r7;
  mul.lo.u32 %r6, %r6, 0x846ca68b;
  shr.u32 %r7, %r6, 16;
  xor.b32 %r6, %r6, %r7;
  shl.b64 %rd7, %rd3, 2;
  add.u64 %rd7, %rd1, %rd7;
  st.global.u32 [%rd7], %r6;
  add.u64 %rd3, %rd3, %rd5;
  bra fill_next;
fill_end:
  ret;
}

.visible .entry fulldeck_check(.param .u64 words, .param .u64 count, .param .u32 seed, .param .u64 found)
{
  .reg .pred %p<3>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [words];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [count];
  ld.param.u32 %r1, [seed];
  ld.param.u64 %rd8, [found];
  cvta.to.global.u64 %rd8, %rd8;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %ctaid.x;
  mul.wide.u32 %rd3, %r3, %r2;
  mov.u32 %r4, %tid.x;
  cvt.u64.u32 %rd4, %r4;
  add.u64 %rd3, %rd3, %rd4;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %rd5, %r5, %r2;
check_next:
  setp.ge.u64 %p1, %rd3, %rd2;
  @%p1 bra check_end;
  shr.u64 %rd6, %rd3, 32;
  cvt.u32.u64 %r6, %rd3;
  cvt.u32.u64 %r7, %rd6;
  xor.b32 %r6, %r6, %r7;
  xor.b32 %r6, %r6, %r1;
  shr.u32 %r7, %r6, 16;
  xor.b32 %r6, %r6, %r7;
  mul.lo.u32 %r6, %r6, 0x7feb352d;
  shr.u32 %r7, %r6, 15;
  xor.b32 %r6, %r6, %r7;
  mul.lo.u32 %r6, %r6, 0x846ca68b;
  shr.u32 %r7, %r6, 16;
  xor.b32 %r6, %r6, %r7;
  shl.b64 %rd7, %rd3, 2;
  add.u64 %rd7, %rd1, %rd7;
  ld.global.u32 %r8, [%rd7];
  setp.eq.u32 %p2, %r8, %r6;
  @%p2 bra check_fine;
  atom.global.add.u64 %rd9, [%rd8], 1;
  atom.global.min.u64 %rd9, [%rd8+8], %rd3;
check_fine:
  add.u64 %rd3, %rd3, %rd5;
  bra check_next;
check_end:
  ret;
}

.visible .entry fulldeck_compute(.param .u64 whole, .param .u64 real, .param .u32 count, .param .u32 steps)
{
  .reg .pred %p<3>;
  .reg .f32 %f<5>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<8>;
  ld.param.u32 %r1, [count];
  ld.param.u32 %r2, [steps];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r3, %r1;
  @%p1 bra compute_end;
  shr.u32 %r6, %r3, 16;
  xor.b32 %r6, %r3, %r6;
  mul.lo.u32 %r6, %r6, 0x7feb352d;
  shr.u32 %r7, %r6, 15;
  xor.b32 %r6, %r6, %r7;
  mul.lo.u32 %r6, %r6, 0x846ca68b;
  shr.u32 %r7, %r6, 16;
  xor.b32 %r6, %r6, %r7;
  and.b32 %r8, %r3, 1023;
  cvt.rn.f32.u32 %f1, %r8;
  mov.f32 %f2, 0f3F400000;
compute_next:
  setp.eq.u32 %p2, %r2, 0;
  @%p2 bra compute_store;
  mad.lo.u32 %r6, %r6, 1664525, 1013904223;
  shr.u32 %r9, %r6, 24;
  cvt.rn.f32.u32 %f3, %r9;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  sub.u32 %r2, %r2, 1;
  bra compute_next;
compute_store:
  mul.wide.u32 %rd1, %r3, 4;
  ld.param.u64 %rd2, [whole];
  cvta.to.global.u64 %rd2, %rd2;
  add.u64 %rd2, %rd2, %rd1;
  st.global.u32 [%rd2], %r6;
  ld.param.u64 %rd3, [real];
  cvta.to.global.u64 %rd3, %rd3;
  add.u64 %rd3, %rd3, %rd1;
  st.global.f32 [%rd3], %f1;
compute_end:
  ret;
}
)ptx";

}  // namespace fulldeck::doctor
