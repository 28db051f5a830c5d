// The arithmetic: reduces the same stretch of several ranks' data, element by element in the order of the ranks, in one
// pass over memory. One source is compiled for every instruction set, and all give the same bits:
//   - Every step is one IEEE operation, rounded to nearest even, with subnormals, whatever rounding, flush-to-zero or
//     traps the calling thread has set; an element's result depends on nothing but its column of inputs.
//   - float16 and bfloat16 are reduced in float and rounded once. avg divides the sum at the end.
//   - A NaN in the column gives NaN, for min and max too: the first one in the order of the ranks, made quiet, its sign
//     and payload kept. A NaN that arises (inf − inf, 0 · inf) is the positive one without payload.
//   - Of −0 and +0, min and max keep the one of the lower rank.
//   - Integers wrap round; avg of integers divides the wrapped sum and cuts towards 0. Results of bool are 0 or 1.
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

// The best one that this processor and this build have, or the one that `forced` names ("" is none): an error if it is
// unknown or cannot run here.
base::Result<InstructionSet> ChooseInstructionSet(std::string_view forced);
// For tests: can it run here?
bool CanRun(InstructionSet set);

// One stretch. Pointers need no alignment. Sources and outputs are the same memory or apart, element by element: an
// output may be one of the sources.
struct ReduceJob {
  const std::byte* const* sources = nullptr;  // in the order of the ranks
  int source_count = 0;
  std::byte* const* outputs = nullptr;  // each gets the same result
  int output_count = 0;
  std::uint64_t count = 0;  // elements

  // A reduction over more ranks than `sources`, done in parts one after another: `prefix` is what the earlier part left
  // (in accumulators: float for 16-bit floats, else the type itself); `partial` is where this part leaves its own, and
  // then there are no outputs and avg is not yet divided. Both nullptr: the whole reduction.
  const std::byte* prefix = nullptr;
  std::byte* partial = nullptr;

  int divisor = 1;              // of avg: the number of all ranks
  bool find_nonfinite = false;  // floats only, and only where results are written to outputs
};

// Bytes of one accumulator: what an element of prefix and partial takes.
std::uint64_t AccumulatorBytes(Datatype datatype);

// The first result that is NaN or infinite, and the first source that was not finite there; −1: every source was finite
// and the reduction overflowed, or the cause lies in the prefix. Found before the result is written, since an output
// may be the very source that caused it.
struct NonfiniteHit {
  std::uint64_t index = 0;
  int source = -1;
};

// Returns the first hit, where that was asked for. The check rides in the same pass. CHECKs CanReduce, source_count ≥ 1
// (or a prefix), CanRun, a divisor ≥ 1 of avg, and no outputs with a partial. Any thread, any number at once.
using ReduceFunction = std::optional<NonfiniteHit> (*)(const ReduceJob& job);
ReduceFunction KernelFor(InstructionSet set, Datatype datatype, Reduction reduction);

// A rare question, asked after a result was not finite: is this one element of an input finite?
bool IsFinite(const std::byte* element, Datatype datatype);

}  // namespace fulldeck::collectives
