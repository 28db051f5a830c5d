#include "torch_backend/host_map.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "torch_backend/engine.h"

namespace fulldeck::torch_backend {
namespace {

// What others say is capped before anybody reads it.
constexpr std::size_t kMostText = 512;

std::string RandomSecret() {
  unsigned char bytes[16];
  std::size_t have = 0;
  while (have < sizeof bytes) {
    const ssize_t got = getrandom(bytes + have, sizeof bytes - have, 0);
    TORCH_CHECK(got > 0 || errno == EINTR, "fulldeck: the system gives no random bytes.");
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string TextOf(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), kMostText))};
}

}  // namespace

std::string HostName::ToText() const {
  return key + "\n" + name;
}

HostName HostName::FromText(const std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return {text, base::Printable(text)};
  return {text.substr(0, end), base::Printable(text.substr(end + 1))};
}

HostName ThisHost() {
  HostName host;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, host.key);
  struct stat space = {};
  // Without either the host is one of its own kind; a meeting then fails with a reason, where it does.
  host.key += stat("/proc/self/ns/net", &space) == 0 ? " net " + std::to_string(space.st_ino) : " net ?";
  struct utsname names = {};
  if (uname(&names) == 0) host.name = names.nodename;
  return host;
}

bool HostMap::even() const {
  return std::all_of(members.begin(), members.end(),
                     [&](const std::vector<int>& ranks) { return ranks.size() == members.front().size(); });
}

int HostMap::LocalRank(int rank) const {
  const std::vector<int>& ranks = members[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])];
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

HostMap HostMap::Of(const std::vector<HostName>& said) {
  HostMap map;
  std::map<std::string, int> numbers;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const auto [found, is_new] = numbers.emplace(said[rank].key, map.hosts());
    if (is_new) {
      map.members.emplace_back();
      map.names.push_back(said[rank].name);
    }
    map.host_of.push_back(found->second);
    map.members[static_cast<std::size_t>(found->second)].push_back(static_cast<int>(rank));
  }
  return map;
}

Introduction Introduce(c10d::Store& store, int rank, int size, const HostName& here,
                       std::chrono::milliseconds timeout) {
  Introduction result;
  const std::int64_t generation = store.add("fulldeck/made/" + std::to_string(rank), 1);
  result.prefix = "fulldeck/" + std::to_string(generation) + "/";

  const std::string secret_key = result.prefix + "secret";
  const auto host_key = [&](int of) { return result.prefix + "host/" + std::to_string(of); };
  store.set(host_key(rank), here.ToText());
  if (rank == 0) store.set(secret_key, RandomSecret());

  std::vector<std::string> keys = {secret_key};
  for (int of = 0; of < size; ++of) keys.push_back(host_key(of));
  try {
    store.wait(keys, timeout);
  } catch (const std::exception& error) {
    std::string missing;
    for (int of = 0; of < size; ++of) {
      if (!store.check({host_key(of)})) missing += (missing.empty() ? "" : ", ") + std::to_string(of);
    }
    if (missing.empty()) throw;
    C10_THROW_ERROR(DistBackendError, "fulldeck: these of the " + std::to_string(size) + " ranks did not come within " +
                                          std::to_string(timeout.count()) + " ms: " + missing + ". (" + error.what() +
                                          ")");
  }
  std::vector<std::vector<std::uint8_t>> values;
  if (store.hasExtendedApi()) {
    values = store.multiGet(keys);
  } else {
    for (const std::string& key : keys) values.push_back(store.get(key));
  }
  result.secret = TextOf(values[0]);
  std::vector<HostName> said;
  for (std::size_t i = 1; i < values.size(); ++i) said.push_back(HostName::FromText(TextOf(values[i])));
  result.hosts = HostMap::Of(said);
  return result;
}

}  // namespace fulldeck::torch_backend
