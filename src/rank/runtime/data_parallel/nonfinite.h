// Looks for NaN and infinity in host memory, at the speed of reading it: for backends whose reduction does not look.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>

namespace fulldeck::runtime {

// The first element that is not finite; nothing too where the type is not one that is looked at.
std::optional<std::size_t> FirstNonfinite(const void* data, c10::ScalarType type, std::size_t count);
// double, float, float16, bfloat16.
bool CanFindNonfinite(c10::ScalarType type);

}  // namespace fulldeck::runtime
