#include "launcher/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/files/system_root.h"
#include "base/files/unique_fd.h"
#include "base/text.h"

namespace fulldeck::launcher {
namespace {

using base::Error;

std::string FirstBytes(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return "";
  char bytes[256];
  const ssize_t got = read(file.get(), bytes, sizeof bytes);
  return got > 0 ? std::string(bytes, static_cast<std::size_t>(got)) : "";
}

// The interpreter in the first line of a script; empty if there is none.
std::string NamedInterpreter(const std::string& path) {
  const std::string bytes = FirstBytes(path);
  if (!bytes.starts_with("#!")) return "";
  std::string_view line = std::string_view(bytes).substr(2, bytes.find('\n') - 2);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  // A '\r' belongs to the name, as it does for the kernel.
  return std::string(line.substr(0, line.find_first_of(" \t")));
}

bool IsFile(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

// Files in the same folder as a missing one, for a suggestion.
std::string Suggestion(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  std::array<char, 4096> full{};
  if (realpath(folder.c_str(), full.data()) == nullptr) return "";
  const auto near =
      base::ClosestMatch(path.substr(slash == std::string::npos ? 0 : slash + 1), base::SystemRoot().List(full.data()));
  return near ? fmt::format("; did you mean {}?", base::Printable(*near)) : ".";
}

base::Result<std::string> FindExecutable(const std::string& name, const base::Environment& environment) {
  if (name.find('/') == std::string::npos) {
    const auto found = base::SystemRoot().FindProgram(name, environment);
    if (found) return *found;
    if (!IsFile(name)) return Error{fmt::format("there is no program '{}' on PATH", base::Printable(name)), ENOENT};
    return Error{fmt::format("there is no program '{0}' on PATH; the file here is ./{0}", base::Printable(name)),
                 ENOENT};
  }
  if (!IsFile(name)) {
    return Error{fmt::format("there is no file {}{}", base::Printable(name), Suggestion(name)), ENOENT};
  }
  if (access(name.c_str(), X_OK) != 0) {
    return Error{fmt::format("{0} is not executable. Make it so with: chmod +x {0}", base::Printable(name)), EACCES};
  }
  const std::string interpreter = NamedInterpreter(name);
  if (!interpreter.empty() && access(interpreter.c_str(), X_OK) != 0) {
    const bool carriage_return = FirstBytes(name).substr(0, FirstBytes(name).find('\n')).ends_with('\r');
    return Error{fmt::format("{} names the interpreter {}, which is not there{}", base::Printable(name),
                             base::Printable(interpreter),
                             carriage_return ? " (its lines end in \\r\\n: convert it with dos2unix)" : ""),
                 ENOENT};
  }
  return name;
}

// Returns "python3" if the folder's Python must not be used.
std::string PythonNextTo(const std::string& folder) {
  const std::string name = "python3";
  for (const char* shared : {"", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"}) {
    if (folder == shared) return name;
  }
  // Any user who can write to the folder could choose which Python runs.
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0 || (status.st_uid != 0 && status.st_uid != geteuid()) ||
      (status.st_mode & S_IWOTH) != 0) {
    return name;
  }
  const std::string path = folder + "/" + name;
  return IsFile(path) && access(path.c_str(), X_OK) == 0 ? path : name;
}

// Whether the file is executable, is not named .py and has no Python in its first line.
bool RunsDirectly(const std::string& script) {
  if (script.ends_with(".py") || !IsFile(script) || access(script.c_str(), X_OK) != 0) return false;
  const std::string bytes = FirstBytes(script);
  const std::string first_line = bytes.substr(0, bytes.find('\n'));
  if (bytes.starts_with("#!")) return first_line.find("python") == std::string::npos;
  return bytes.starts_with(
      "\x7f"
      "ELF");
}

}  // namespace

base::Result<std::vector<std::string>> ResolveProgram(const job::LaunchFlags& flags,
                                                      const base::Environment& environment,
                                                      const std::string& own_folder) {
  const std::string& script = flags.program.front();
  std::vector<std::string> line;
  const bool direct = flags.no_python || (!flags.module && !flags.run_path && RunsDirectly(script));
  if (direct) {
    // A bare name that is an executable file in this folder means that file; exec would only search PATH.
    const bool here = script.find('/') == std::string::npos && !flags.no_python;
    auto program = FindExecutable(here ? "./" + script : script, environment);
    if (!program) return program.error();
    line.push_back(*program);
  } else {
    const std::string python = environment.Get("PYTHON_EXEC").value_or(PythonNextTo(own_folder));
    auto interpreter = FindExecutable(python, environment);
    if (!interpreter) {
      return Error{interpreter.error().message + ". A Python is needed to run " + base::Printable(script) +
                       ": put one on PATH, or name it in PYTHON_EXEC",
                   interpreter.error().system_error};
    }
    line = {*interpreter, "-u"};
    struct stat facts {};
    if (flags.module) {
      line.emplace_back("-m");
    } else if (stat(script.c_str(), &facts) != 0) {
      return Error{fmt::format("there is no script {}{}", base::Printable(script), Suggestion(script)), errno};
    } else if (access(script.c_str(), R_OK) != 0) {
      return base::ErrnoError("cannot read " + base::Printable(script));
    }
    line.push_back(script);
  }
  line.insert(line.end(), flags.program.begin() + 1, flags.program.end());
  return line;
}

std::string PythonOf(const std::vector<std::string>& resolved, const job::LaunchFlags& flags) {
  return !flags.no_python && resolved.size() > 1 && resolved[1] == "-u" ? resolved[0] : "";
}

std::vector<std::string> ProgramOfRank(const std::vector<std::string>& resolved, const job::LaunchFlags& flags,
                                       int local_rank) {
  if (!flags.add_local_rank) return resolved;
  std::vector<std::string> line = resolved;
  const std::size_t arguments = flags.program.size() - 1;
  line.insert(line.end() - static_cast<std::ptrdiff_t>(arguments), "--local-rank=" + std::to_string(local_rank));
  return line;
}

}  // namespace fulldeck::launcher
