// SystemRoot: /proc, /sys, /dev and friends, as files below a root. The root is "/" on a machine and a small tree in
// tests and support cases, so that every reader can be shown any machine.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::base {

// A plain value; any thread may read through it. Reads only, never writes.
class SystemRoot {
 public:
  explicit SystemRoot(std::string root = "/");

  bool is_machine() const { return root_.empty(); }

  // "/proc/stat" as a path that can be opened.
  std::string Path(std::string_view absolute) const;

  bool Exists(std::string_view absolute) const;

  // At most `limit` bytes. Kernel files have no honest size, so the text is read to its end.
  Result<std::string> ReadFile(std::string_view absolute, std::size_t limit = std::size_t{1} << 20) const;

  // First line without surrounding space; nothing when the file is absent, unreadable or empty.
  std::optional<std::string> ReadLine(std::string_view absolute) const;

  // Names in a folder, sorted; empty when there is none.
  std::vector<std::string> List(std::string_view absolute) const;

  // Target of a symbolic link as it is written.
  std::optional<std::string> ReadLink(std::string_view absolute) const;

  // Where the program `name` lies: in PATH on a machine, in the usual folders below any other root.
  std::optional<std::string> FindProgram(std::string_view name, const Environment& environment) const;

 private:
  std::string root_;  // empty for the machine itself
};

// Path of the program that runs; "/proc/self/exe", which leads there too, where the kernel does not tell it.
std::string ExecutablePath();

}  // namespace fulldeck::base
