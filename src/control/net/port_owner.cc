#include "net/port_owner.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace fulldeck::net {
namespace {

constexpr std::string_view kListening = "0A";
constexpr std::size_t kTableLimit = std::size_t{16} << 20;
constexpr std::size_t kShownCommand = 120;

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (const std::string_view word : base::Split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// Columns: number, local address as hex:HEXPORT, remote address, state, …; the tenth is the inode of the socket.
void AddListeners(const base::SystemRoot& root, std::string_view table, int port, std::set<std::string>& sockets) {
  const auto text = root.ReadFile(table, kTableLimit);
  if (!text) return;
  for (const std::string_view line : base::Split(*text, '\n')) {
    const auto words = Words(line);
    if (words.size() < 10 || words[3] != kListening) continue;
    const auto colon = words[1].rfind(':');
    if (colon == std::string_view::npos) continue;
    if (base::ParseInteger<int>(words[1].substr(colon + 1), 16) != port) continue;
    sockets.insert("socket:[" + std::string(words[9]) + "]");
  }
}

std::string CommandOf(const base::SystemRoot& root, const std::string& process) {
  auto command = root.ReadFile(process + "/cmdline", 4096);
  if (!command || command->empty()) return root.ReadLine(process + "/comm").value_or("?");
  std::replace(command->begin(), command->end(), '\0', ' ');
  return std::string(base::Trim(*command));
}

}  // namespace

std::optional<std::string> ListenerOnPort(int port, const base::SystemRoot& root) {
  std::set<std::string> sockets;
  AddListeners(root, "/proc/net/tcp", port, sockets);
  AddListeners(root, "/proc/net/tcp6", port, sockets);
  if (sockets.empty()) return std::nullopt;
  for (const std::string& name : root.List("/proc")) {
    if (!base::ParseInteger<int>(name)) continue;
    const std::string process = "/proc/" + name;
    for (const std::string& descriptor : root.List(process + "/fd")) {
      const auto target = root.ReadLink(process + "/fd/" + descriptor);
      if (!target || sockets.count(*target) == 0) continue;
      return "pid " + name + " (" + base::Printable(CommandOf(root, process).substr(0, kShownCommand)) + ")";
    }
  }
  return std::nullopt;
}

}  // namespace fulldeck::net
