// Asks the user for confirmation.
#pragma once

#include <string>

namespace fulldeck::cli {

// Prints the question to stderr and reads the answer from stdin. Anything but y or yes is no, including end of file.
bool Confirm(const std::string& question);

}  // namespace fulldeck::cli
