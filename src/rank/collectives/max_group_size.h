// Maximum number of members of a group. The tables in shared memory have this size: it is part of their layout.
#pragma once

namespace fulldeck::collectives {

inline constexpr int kMaxGroupSize = 256;

}  // namespace fulldeck::collectives
