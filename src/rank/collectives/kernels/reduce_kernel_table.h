// What each instruction set's translation unit gives away: a table of functions, and nothing that runs by itself. Those
// units are compiled with flags of their own, so they hold no inline function or template that the linker could take
// for everybody; all of theirs is in unnamed namespaces, and this header shows them plain data alone.
#pragma once

#include <cstdint>

#include "collectives/kernels/reduce_kernel.h"

namespace fulldeck::collectives {

constexpr std::uint64_t kAllFinite = ~std::uint64_t{0};

struct KernelTable {
  // An index of kAllFinite is no hit. Checks nothing.
  using Function = NonfiniteHit (*)(const ReduceJob& job);
  // By the numbers of Datatype and Reduction; nullptr where CanReduce says no.
  Function functions[FULLDECK_FLOAT64 + 1][FULLDECK_XOR + 1];
};

// nullptr: this build does not have it (another architecture, or compiled without cmake/collectives_kernels.cmake).
extern const KernelTable* const kPlainKernels;
extern const KernelTable* const kAvx2Kernels;
extern const KernelTable* const kAvx512Kernels;
extern const KernelTable* const kNeonKernels;

}  // namespace fulldeck::collectives
