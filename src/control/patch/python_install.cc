#include "patch/python_install.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/files/unique_fd.h"
#include "base/python_start.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace fulldeck::patch {
namespace {

using base::Error;
using base::Result;

constexpr std::size_t kLongestAnswer = 64 * 1024;

// The working directory is not on the path (base/python_start.h), so a folder of the package's name in it is not
// found. find_spec of a top-level package runs none of its code. Runs on Python 3.8 and older.
constexpr char kQuestion[] = R"(
import importlib.util, os, sys
spec = importlib.util.find_spec(sys.argv[1])
folder = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
version = ""
try:
    with open(os.path.join(folder, "version.py"), encoding="utf-8") as source:
        for line in source:
            if line.startswith("__version__"):
                version = line.split("=", 1)[1].strip().strip("'\"")
                break
except OSError:
    pass
try:
    ours = importlib.util.find_spec("fulldeck.adapters") is not None
except Exception:
    ours = False
sys.stdout.write("\n".join(["fulldeck", sys.executable, folder, version, "yes" if ours else "no", "end"]) + "\n")
)";

bool IsProgram(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && access(path.c_str(), X_OK) == 0;
}

// Everything that the child prints until it ends; nullopt if the deadline passes first.
std::optional<std::string> ReadUntil(int fd, base::TimePoint deadline) {
  std::string text;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - base::SteadyClock::Instance().Now());
    if (left.count() <= 0) return std::nullopt;
    pollfd waited{fd, POLLIN, 0};
    const int ready = poll(&waited, 1, static_cast<int>(std::min<long long>(left.count(), 60'000)));
    if (ready < 0 && errno != EINTR) return text;
    if (ready <= 0) continue;
    char chunk[4096];
    const ssize_t got = read(fd, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || text.size() > kLongestAnswer) return text;
    text.append(chunk, static_cast<std::size_t>(got));
  }
}

}  // namespace

Result<std::string> FindPython(const std::string& requested, const base::Environment& environment) {
  std::string name = requested;
  if (name.empty()) {
    const auto active = environment.Get("VIRTUAL_ENV");
    if (active && !active->empty()) {
      const std::string path = *active + "/bin/python";
      if (IsProgram(path)) return path;
      return Error{fmt::format("VIRTUAL_ENV is {}, and there is no Python in it. Name one: --python PATH",
                               base::Printable(*active))};
    }
    name = "python3";
  }
  if (name.find('/') != std::string::npos) {
    if (IsProgram(name)) return name;
    return Error{fmt::format("{} is not a program that can be run", base::Printable(name))};
  }
  for (const std::string_view folder : base::Split(environment.Get("PATH").value_or("/usr/bin:/bin"), ':')) {
    // Empty and relative entries refer to the working directory, where anyone may have put a python3.
    if (!folder.starts_with("/")) continue;
    const std::string path = std::string(folder) + "/" + name;
    if (IsProgram(path)) return path;
  }
  return Error{fmt::format("there is no {} on PATH. Name the Python: --python PATH", base::Printable(name))};
}

Result<PythonInstall> QueryPython(const std::string& python, const std::string& package, base::Duration timeout) {
  auto pipe = base::MakePipe();
  if (!pipe) return pipe.error();
  base::SpawnOptions options;
  const base::PythonStart start =
      base::StartPythonScript(python, kQuestion, {package}, base::Environment::OfThisProcess());
  options.arguments = start.arguments;
  options.environment = start.Variables();
  options.descriptors = {{1, pipe->write_end.get()}, {2, 2}};
  options.parent_death_signal = SIGKILL;
  const auto child = base::Spawn(options);
  if (!child) return child.error();
  pipe->write_end.Reset();
  const auto answer = ReadUntil(pipe->read_end.get(), base::SteadyClock::Instance().Now() + timeout);
  // The child has its own session, so this also kills everything that it started.
  if (!answer) kill(-*child, SIGKILL);
  int status = 0;
  while (waitpid(*child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!answer) {
    return Error{fmt::format("{} did not say within {} s where it has {}", base::Printable(python),
                             std::chrono::duration_cast<std::chrono::seconds>(timeout).count(), package)};
  }
  auto lines = base::Split(*answer, '\n');
  // A sitecustomize may print something first.
  lines.erase(lines.begin(), std::find(lines.begin(), lines.end(), "fulldeck"));
  if (status != 0 || lines.size() < 6 || lines[5] != "end") {
    return Error{fmt::format("{} does not work as a Python 3: it could not be asked where it has {}",
                             base::Printable(python), package)};
  }
  PythonInstall install{std::string(lines[1]), std::string(lines[2]), std::string(lines[3]), lines[4] == "yes"};
  if (install.folder.empty()) {
    return Error{fmt::format("{} has no package {}. Name the Python that has it: --python PATH",
                             base::Printable(install.python.empty() ? python : install.python), package)};
  }
  return install;
}

}  // namespace fulldeck::patch
