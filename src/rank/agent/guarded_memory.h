// Memory for a stack, with a guard page below it that catches an overflow.
#pragma once

#include <cstddef>

namespace fulldeck::agent {

// `size` bytes, a multiple of 64 KiB, which are committed on first use and never released; nullptr if they cannot be
// mapped.
char* GuardedMemory(std::size_t size);

}  // namespace fulldeck::agent
