// How many members a group may have. Tables of members in shared memory have room for so many: part of its layout.
#pragma once

namespace fulldeck::collectives {

inline constexpr int kLargestGroup = 256;

}  // namespace fulldeck::collectives
