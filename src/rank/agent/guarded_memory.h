// Memory for a stack, with a page below it that stops an overflow.
#pragma once

#include <cstddef>

namespace fulldeck::agent {

// `size` bytes, a multiple of 64 KiB, that take no memory until they are used and are never given back; nullptr when
// there are none.
char* GuardedMemory(std::size_t size);

}  // namespace fulldeck::agent
