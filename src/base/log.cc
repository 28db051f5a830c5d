#include "base/log.h"

#include <unistd.h>

#include <string>

namespace fulldeck::base {

void Log(Severity severity, std::string_view message) {
  std::string line = "fulldeck: ";
  if (severity == Severity::kWarning) line += "warning: ";
  if (severity == Severity::kError) line += "error: ";
  line += message;
  line += '\n';
  // Nobody is left to tell when stderr itself cannot be written.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace fulldeck::base
