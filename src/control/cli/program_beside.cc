#include "cli/program_beside.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/files/system_root.h"
#include "base/text.h"

namespace fulldeck::cli {

base::Result<std::string> ProgramBeside(const std::string& name) {
  std::string folder = base::ExecutablePath();
  folder.erase(folder.rfind('/'));
  const std::string path = folder + "/" + name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return base::Error{fmt::format(
      "{} is not in {}, and fulldeck cannot train or predict without it. Wheels, and builds without torch, do not have "
      "it: build fulldeck where Python has torch (docs/install.md), or run the fulldeck of such a build",
      name, base::Printable(folder))};
}

}  // namespace fulldeck::cli
