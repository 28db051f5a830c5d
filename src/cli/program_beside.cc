#include "cli/program_beside.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "base/text.h"

namespace fulldeck::cli {

base::Result<std::string> ProgramBeside(const std::string& name) {
  std::array<char, PATH_MAX> own{};
  const ssize_t length = readlink("/proc/self/exe", own.data(), own.size() - 1);
  if (length <= 0) return base::ErrnoError("/proc/self/exe");
  std::string folder(own.data(), static_cast<std::size_t>(length));
  folder.erase(folder.rfind('/'));
  const std::string path = folder + "/" + name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return base::Error{fmt::format(
      "{} is not in {}: this fulldeck was built without torch, and cannot train or predict. Build it where Python has "
      "torch (docs/install.md), or run the fulldeck of such a build",
      name, base::Printable(folder))};
}

}  // namespace fulldeck::cli
