// The arithmetic: reduces the same range of several ranks' data, element by element in rank order, in one pass over
// memory. One source is compiled for every instruction set, and all produce the same bits:
//   - Every step is one IEEE operation, rounded to nearest even, with subnormals, regardless of the rounding mode,
//     flush-to-zero mode or traps of the calling thread. A result element depends only on its column of inputs.
//   - float16 and bfloat16 are reduced in float and rounded once. avg divides the sum at the end.
//   - A NaN in the column gives NaN, for min and max too: the first one in rank order, made quiet, with its sign and
//     payload. A NaN that an operation creates (inf − inf, 0 · inf) is positive and has no payload.
//   - Of −0 and +0, min and max keep the one of the lower rank.
//   - Integers wrap around; avg of integers divides the wrapped sum and truncates toward 0. Results of bool are 0 or 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "collectives/kernels/datatype.h"

namespace fulldeck::collectives {

enum class InstructionSet : std::uint8_t { kPlain, kAvx2, kAvx512, kNeon };
const char* NameOf(InstructionSet set);  // "plain", "avx2", "avx512", "neon": the values of FULLDECK_COLLECTIVES_KERNEL

// The best instruction set that this CPU and this build support, or the one named by `forced` ("" for none); fails if
// that one is unknown or unsupported here.
base::Result<InstructionSet> ChooseInstructionSet(std::string_view forced);
// For tests: whether it is supported here.
bool CanRun(InstructionSet set);

// One range. Pointers need no alignment. An output may be the same memory as a source; otherwise they must not overlap.
struct ReduceJob {
  const std::byte* const* sources = nullptr;  // in rank order
  int source_count = 0;
  std::byte* const* outputs = nullptr;  // each gets the same result
  int output_count = 0;
  std::uint64_t count = 0;  // elements

  // A reduction over more ranks than `sources` runs in several steps: `prefix` is the result of the earlier steps (in
  // accumulators: float for 16-bit floats, otherwise the type itself); `partial` receives the result of this step, in
  // which case there are no outputs and avg is not yet divided. Both nullptr: the whole reduction.
  const std::byte* prefix = nullptr;
  std::byte* partial = nullptr;

  int divisor = 1;              // for avg: the number of all ranks
  bool find_nonfinite = false;  // floats only, and only if results are written to outputs
};

// Bytes of one accumulator, which is one element of prefix and partial.
std::uint64_t AccumulatorBytes(Datatype datatype);

// The first result that is NaN or infinite, and the first source that was not finite there; −1: every source was finite
// and the reduction overflowed, or the cause is in the prefix. Determined before the result is written, because an
// output may be the source that caused it.
struct NonfiniteHit {
  std::uint64_t index = 0;
  int source = -1;
};

// Returns the first hit, if find_nonfinite is set; the check is part of the same pass. CHECKs CanReduce, source_count ≥
// 1 (or a prefix), CanRun, a divisor ≥ 1 for avg, and that there are no outputs with a partial. Thread safe.
using ReduceFunction = std::optional<NonfiniteHit> (*)(const ReduceJob& job);
ReduceFunction KernelFor(InstructionSet set, Datatype datatype, Reduction reduction);

// Whether one element of an input is finite. Slow; used only after a result was not finite.
bool IsFinite(const std::byte* element, Datatype datatype);

}  // namespace fulldeck::collectives
