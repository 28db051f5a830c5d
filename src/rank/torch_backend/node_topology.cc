#include "torch_backend/node_topology.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "collectives/group.h"

namespace fulldeck::torch_backend {
namespace {

// Limit on strings that other members send.
constexpr std::size_t kMaxText = 512;

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
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), kMaxText))};
}

}  // namespace

std::string NodeIdentity::ToText() const {
  return key + "\n" + name;
}

NodeIdentity NodeIdentity::FromText(const std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return {text, base::Printable(text)};
  return {text.substr(0, end), base::Printable(text.substr(end + 1))};
}

NodeIdentity ThisNode() {
  NodeIdentity node;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, node.key);
  struct stat space = {};
  // Without either, the node counts as different from all others; if that is wrong, the rendezvous fails with a reason.
  node.key += stat("/proc/self/ns/net", &space) == 0 ? " net " + std::to_string(space.st_ino) : " net ?";
  struct utsname names = {};
  if (uname(&names) == 0) node.name = names.nodename;
  return node;
}

bool NodeTopology::even() const {
  return std::all_of(members.begin(), members.end(),
                     [&](const std::vector<int>& ranks) { return ranks.size() == members.front().size(); });
}

int NodeTopology::LocalRank(int rank) const {
  const std::vector<int>& ranks = members[static_cast<std::size_t>(node_of[static_cast<std::size_t>(rank)])];
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

NodeTopology NodeTopology::Of(const std::vector<NodeIdentity>& identities) {
  NodeTopology map;
  std::map<std::string, int> numbers;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const auto [found, is_new] = numbers.emplace(identities[rank].key, map.nodes());
    if (is_new) {
      map.members.emplace_back();
      map.names.push_back(identities[rank].name);
    }
    map.node_of.push_back(found->second);
    map.members[static_cast<std::size_t>(found->second)].push_back(static_cast<int>(rank));
  }
  return map;
}

NodeExchange ExchangeNodes(c10d::Store& store, int rank, int size, const NodeIdentity& here,
                           std::chrono::milliseconds timeout) {
  NodeExchange result;
  const std::int64_t generation = store.add("fulldeck/made/" + std::to_string(rank), 1);
  result.prefix = "fulldeck/" + std::to_string(generation) + "/";

  const std::string secret_key = result.prefix + "secret";
  const auto node_key = [&](int of) { return result.prefix + "host/" + std::to_string(of); };
  store.set(node_key(rank), here.ToText());
  if (rank == 0) store.set(secret_key, RandomSecret());

  std::vector<std::string> keys = {secret_key};
  for (int of = 0; of < size; ++of) keys.push_back(node_key(of));
  try {
    store.wait(keys, timeout);
  } catch (const std::exception& error) {
    std::string missing;
    for (int of = 0; of < size; ++of) {
      if (!store.check({node_key(of)})) missing += (missing.empty() ? "" : ", ") + std::to_string(of);
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
  std::vector<NodeIdentity> identities;
  for (std::size_t i = 1; i < values.size(); ++i) identities.push_back(NodeIdentity::FromText(TextOf(values[i])));
  result.nodes = NodeTopology::Of(identities);
  return result;
}

}  // namespace fulldeck::torch_backend
