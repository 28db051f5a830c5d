// What the translation unit of an instruction set exports: a table of functions. These units are compiled with their
// own flags, so they must not contain inline functions or templates whose copies the linker could use for the whole
// program. All their code is in unnamed namespaces, and this header contains only plain data.
#pragma once

#include <cstdint>

#include "collectives/kernels/reduce_kernel.h"

namespace fulldeck::collectives {

constexpr std::uint64_t kAllFinite = ~std::uint64_t{0};

struct KernelTable {
  // An index of kAllFinite means no hit. Checks nothing.
  using Function = NonfiniteHit (*)(const ReduceJob& job);
  // Indexed by Datatype and Reduction; nullptr if CanReduce is false.
  Function functions[FULLDECK_FLOAT64 + 1][FULLDECK_XOR + 1];
};

// nullptr: not in this build (another architecture, or compiled without cmake/collectives_kernels.cmake).
extern const KernelTable* const kPlainKernels;
extern const KernelTable* const kAvx2Kernels;
extern const KernelTable* const kAvx512Kernels;
extern const KernelTable* const kNeonKernels;

}  // namespace fulldeck::collectives
