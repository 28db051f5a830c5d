// Programs that exec or start another one, such as a shell or numactl. A rank that is one of these is not yet the
// user's program.
#pragma once

#include <string_view>

namespace fulldeck::agent {

// `name`: the file name of the program without its folder, "bash".
bool IsWrapper(std::string_view name);

}  // namespace fulldeck::agent
