// The name of this machine.
#pragma once

#include <string>

namespace fulldeck::base {

// As gethostname gives it, printable; empty if it cannot be read.
std::string HostName();

}  // namespace fulldeck::base
