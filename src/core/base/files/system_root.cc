#include "base/files/system_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <memory>

#include "base/files/unique_fd.h"
#include "base/text.h"

namespace fulldeck::base {

SystemRoot::SystemRoot(std::string root) : root_(std::move(root)) {
  while (!root_.empty() && root_.back() == '/') root_.pop_back();
}

std::string SystemRoot::Path(std::string_view absolute) const {
  return root_ + std::string(absolute);
}

bool SystemRoot::Exists(std::string_view absolute) const {
  return access(Path(absolute).c_str(), F_OK) == 0;
}

Result<std::string> SystemRoot::ReadFile(std::string_view absolute, std::size_t limit) const {
  const std::string path = Path(absolute);
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return ErrnoError(path);
  std::string text;
  std::array<char, 4096> chunk;
  while (text.size() < limit) {
    const ssize_t got = read(file.get(), chunk.data(), std::min(chunk.size(), limit - text.size()));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(path);
    }
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::optional<std::string> SystemRoot::ReadLine(std::string_view absolute) const {
  const auto text = ReadFile(absolute, 4096);
  if (!text) return std::nullopt;
  const std::string_view line = Trim(Split(*text, '\n').front());
  if (line.empty()) return std::nullopt;
  return std::string(line);
}

std::vector<std::string> SystemRoot::List(std::string_view absolute) const {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(Path(absolute).c_str()), closedir);
  if (!folder) return names;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> SystemRoot::ReadLink(std::string_view absolute) const {
  std::array<char, PATH_MAX> target;
  const ssize_t length = readlink(Path(absolute).c_str(), target.data(), target.size());
  if (length < 0) return std::nullopt;
  return std::string(target.data(), static_cast<std::size_t>(length));
}

std::optional<std::string> SystemRoot::FindProgram(std::string_view name, const Environment& environment) const {
  std::string folders = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  if (is_machine()) folders = environment.Get("PATH").value_or(folders);
  for (const std::string_view folder : Split(folders, ':')) {
    if (folder.empty() || folder.front() != '/') continue;
    const std::string path = Path(std::string(folder) + "/" + std::string(name));
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return std::nullopt;
}

std::string ExecutablePath() {
  return SystemRoot().ReadLink("/proc/self/exe").value_or("/proc/self/exe");
}

}  // namespace fulldeck::base
