#include "cli/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "wire/variables.h"

namespace fulldeck::cli {

bool StdoutWantsColor() {
  const char* no_color = std::getenv(wire::kNoColorVariable);
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace fulldeck::cli
