// How many members a group may have. Tables of members in shared memory have room for so many: part of its layout.
#pragma once

namespace fulldeck::collectives {

inline constexpr int kMaxGroupSize = 256;

}  // namespace fulldeck::collectives
