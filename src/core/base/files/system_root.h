// SystemRoot: the files of /proc, /sys, /dev and so on, below a root. The root is "/" on a machine and a small tree of
// fixtures in tests and support cases, so that every reader can be tested against any machine.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::base {

// A plain value; thread safe. Read only.
class SystemRoot {
 public:
  explicit SystemRoot(std::string root = "/");

  bool is_machine() const { return root_.empty(); }

  // "/proc/stat" as a path that can be opened.
  std::string Path(std::string_view absolute) const;

  bool Exists(std::string_view absolute) const;

  // At most `limit` bytes. Kernel files report no usable size, so the file is read to its end.
  Result<std::string> ReadFile(std::string_view absolute, std::size_t limit = std::size_t{1} << 20) const;

  // The first line, trimmed; nullopt if the file is missing, unreadable or empty.
  std::optional<std::string> ReadLine(std::string_view absolute) const;

  // Names in a folder, sorted; empty if it does not exist.
  std::vector<std::string> List(std::string_view absolute) const;

  // Target of a symbolic link, not resolved.
  std::optional<std::string> ReadLink(std::string_view absolute) const;

  // Path of the program `name`: searched in PATH on a machine, and in the usual folders below any other root.
  std::optional<std::string> FindProgram(std::string_view name, const Environment& environment) const;

 private:
  std::string root_;  // empty for the machine itself
};

// Path of the running executable; if the kernel does not report it, "/proc/self/exe", which refers to the same file.
std::string ExecutablePath();

}  // namespace fulldeck::base
