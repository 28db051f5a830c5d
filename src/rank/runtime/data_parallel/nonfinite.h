// Finds NaN and infinity in host memory, at the speed of reading it: for backends whose reduction does not check.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>

namespace fulldeck::runtime {

// The first non-finite element. Also nullopt if the type is not supported.
std::optional<std::size_t> FirstNonfinite(const void* data, c10::ScalarType type, std::size_t count);
// double, float, float16, bfloat16.
bool CanFindNonfinite(c10::ScalarType type);

}  // namespace fulldeck::runtime
