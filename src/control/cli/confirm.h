// Asks a person.
#pragma once

#include <string>

namespace fulldeck::cli {

// On stderr, answered on stdin. Anything but y or yes is no, the end of stdin too.
bool Confirm(const std::string& question);

}  // namespace fulldeck::cli
