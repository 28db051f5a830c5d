// Programs that run another one in their place or below them, such as a shell or numactl. A rank that is one of these
// is not yet the rank that the user means.
#pragma once

#include <string_view>

namespace fulldeck::agent {

// `name`: the file name of the program without its folders, "bash".
bool IsWrapper(std::string_view name);

}  // namespace fulldeck::agent
