#include <algorithm>
#include <cerrno>
#include <set>

#include "base/text.h"
#include "doctor/network/network_checks.h"
#include "net/port_owner.h"

namespace fulldeck::doctor {
namespace {

constexpr int kUsualMasterPort = 29500;

struct InterfaceVariable {
  std::string_view name;
  std::string_view backend;
  bool exact;  // whole names only; otherwise NCCL's grammar: prefixes, =exact, ^not
};
constexpr InterfaceVariable kVariables[] = {
    {"GLOO_SOCKET_IFNAME", "gloo", true},  {"TP_SOCKET_IFNAME", "", true},        {"NCCL_SOCKET_IFNAME", "nccl", false},
    {"ECCL_SOCKET_IFNAME", "eccl", false}, {"HCCL_SOCKET_IFNAME", "hccl", false}, {"MCCL_SOCKET_IFNAME", "mccl", false},
};

// Interfaces of containers and virtual machines do not lead to another node.
bool IsVirtual(std::string_view name) {
  for (const char* prefix :
       {"docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tunl", "kube", "lxc", "podman"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

bool IsUsable(const NetworkInterface& interface) {
  return interface.up && !interface.addresses.empty();
}

// The interface of the default route; nullopt if there is none.
std::optional<std::string> DefaultRoute(const base::SystemRoot& root) {
  const auto text = root.ReadFile("/proc/net/route", 1 << 20);
  if (text) {
    for (const std::string_view line : base::Split(*text, '\n')) {
      const auto words = base::Split(line, '\t');
      if (words.size() > 7 && words[1] == "00000000" && words[7] == "00000000")
        return std::string(base::Trim(words[0]));
    }
  }
  // IPv6: destination, prefix length, …, the tenth word is the interface.
  const auto text6 = root.ReadFile("/proc/net/ipv6_route", 1 << 20);
  if (!text6) return std::nullopt;
  for (const std::string_view line : base::Split(*text6, '\n')) {
    std::vector<std::string_view> words;
    for (const std::string_view word : base::Split(line, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    if (words.size() < 10 || words[1] != "00" || words[9] == "lo") continue;
    return std::string(words[9]);
  }
  return std::nullopt;
}

std::string Describe(const NetworkInterface& interface) {
  return fmt::format("{} ({}, MTU {}{})", base::Printable(interface.name),
                     interface.addresses.empty() ? "no address" : interface.addresses.front(), interface.mtu,
                     interface.up ? "" : ", down");
}

// "GLOO_SOCKET_IFNAME=eth0 ECCL_SOCKET_IFNAME=eth0": for Gloo and for the cards of this machine.
std::string Exports(const MachineUnderTest& machine, const std::string& interface) {
  std::set<std::string> backends = {"gloo"};
  for (const device::Card* card : machine.inventory.Cards()) backends.insert(card->collective_backend);
  std::vector<std::string> parts;
  for (const InterfaceVariable& variable : kVariables) {
    if (backends.count(std::string(variable.backend)) != 0) {
      parts.push_back(fmt::format("{}={}", variable.name, interface));
    }
  }
  return "export " + base::Join(parts, " ");
}

// What is wrong with one entry of a variable; nullopt if an interface matches.
std::optional<base::BilingualText> WrongEntry(const std::vector<NetworkInterface>& interfaces, std::string_view entry,
                                              bool exact, bool several_nodes) {
  std::vector<const NetworkInterface*> meant;
  for (const NetworkInterface& interface : interfaces) {
    if (exact ? interface.name == entry : interface.name.starts_with(entry)) meant.push_back(&interface);
  }
  if (meant.empty()) return Bilingual("there is no interface {}", "没有网卡 {}", base::Printable(entry));
  const auto usable = std::find_if(meant.begin(), meant.end(), [](const auto* one) { return IsUsable(*one); });
  if (usable == meant.end()) {
    return Bilingual("{} is down or has no address", "{} 未启用或没有地址", base::Printable(entry));
  }
  if (several_nodes && (*usable)->loopback) {
    return Bilingual("{} is the loopback, which leads to no other host", "{} 是回环网卡，到不了其他主机",
                     base::Printable(entry));
  }
  return std::nullopt;
}

}  // namespace

std::vector<Finding> CheckLoopback(const MachineUnderTest& machine) {
  const auto done = machine.kernel->Echo("127.0.0.1");
  if (done)
    return {Ok(
        Bilingual("bound, connected, bytes there and back over 127.0.0.1", "已通过 127.0.0.1 绑定、连接并双向收发"))};
  return {Fail(Bilingual("127.0.0.1 does not work: {}", "127.0.0.1 不可用：{}", base::Printable(done.error().message)),
               Bilingual("ip link set lo up; in a container without network: docker run --network host or bridge",
                         "ip link set lo up；容器没有网络时：docker run --network host 或 bridge"),
               "I9")};
}

std::vector<Finding> CheckInterface(const MachineUnderTest& machine) {
  const auto interfaces = machine.kernel->Interfaces();
  if (interfaces.empty()) {
    return {CannotTell(Bilingual("the kernel lists no interface", "内核没有列出网卡"),
                       Bilingual("ip address", "ip address"), "A5")};
  }
  std::vector<std::string> shown;
  std::vector<const NetworkInterface*> candidates;
  for (const NetworkInterface& interface : interfaces) {
    shown.push_back(Describe(interface));
    if (IsUsable(interface) && !interface.loopback && !IsVirtual(interface.name)) candidates.push_back(&interface);
  }
  const std::string all = base::Join(shown, ", ");
  const auto route = DefaultRoute(machine.root);
  Figures figures = {{"interfaces", all}, {"default_route", route.value_or("")}};
  if (candidates.empty()) {
    if (machine.nodes == 1) {
      return {Ok(Bilingual("no way to other hosts, which one host does not need: {}",
                           "没有通往其他主机的网卡（单机不需要）：{}", all),
                 figures)};
    }
    return {Fail(
        Bilingual("no interface that leads to another host is up: {}", "没有已启用的、通往其他主机的网卡：{}", all),
        Bilingual("bring one up, or start the container with --network host", "启用网卡，或用 --network host 启动容器"),
        "A5", figures)};
  }
  const auto routed =
      std::find_if(candidates.begin(), candidates.end(), [&](const auto* one) { return one->name == route; });
  const NetworkInterface& taken = routed == candidates.end() ? *candidates.front() : **routed;
  figures.emplace_back("taken", taken.name);
  const std::string exports = Exports(machine, base::Printable(taken.name));
  bool chosen = false;
  for (const InterfaceVariable& variable : kVariables) {
    const auto value = machine.environment.Get(variable.name);
    chosen = chosen || (value && !value->empty());
  }
  if (machine.nodes > 1 && candidates.size() > 1 && !chosen) {
    std::vector<std::string> names;
    for (const NetworkInterface* one : candidates) names.push_back(Describe(*one));
    return {Warn(
        Bilingual("{} interfaces could be taken, and ranks may choose different ones: {}",
                  "有 {} 块网卡可用，各 rank 可能选到不同的：{}", candidates.size(), base::Join(names, ", ")),
        Bilingual("name the one that the hosts share, on every host: {}", "在每台主机上指定共用的那块：{}", exports),
        "A5", figures)};
  }
  return {Ok(Bilingual("{}{}; to be sure: {}", "{}{}；如需固定：{}", Describe(taken),
                       route == taken.name ? ", has the default route" : "", exports),
             figures)};
}

std::vector<Finding> CheckInterfaceVariables(const MachineUnderTest& machine) {
  const auto interfaces = machine.kernel->Interfaces();
  const bool several = machine.nodes > 1;
  std::vector<std::string> good;
  std::vector<Finding> findings;
  for (const InterfaceVariable& variable : kVariables) {
    const auto value = machine.environment.Get(variable.name);
    if (!value || value->empty()) continue;
    std::string_view list = *value;
    const bool excludes = !variable.exact && list.starts_with('^');
    if (excludes) {
      good.push_back(fmt::format("{}={}", variable.name, base::Printable(*value)));
      continue;
    }
    const bool exact = variable.exact || list.starts_with('=');
    if (!variable.exact && list.starts_with('=')) list.remove_prefix(1);
    std::optional<base::BilingualText> wrong;
    bool any_right = false;
    for (const std::string_view entry : base::Split(list, ',')) {
      const auto warning = WrongEntry(interfaces, base::Trim(entry), exact, several);
      if (!warning) any_right = true;
      if (warning && !wrong) wrong = warning;
    }
    // NCCL uses the first one that exists; Gloo requires all of them.
    if (!wrong || (any_right && !variable.exact)) {
      good.push_back(fmt::format("{}={}", variable.name, base::Printable(*value)));
      continue;
    }
    findings.push_back(Fail({fmt::format("{}={}: {}", variable.name, base::Printable(*value), wrong->english),
                             fmt::format("{}={}：{}", variable.name, base::Printable(*value), wrong->chinese)},
                            Bilingual("unset {0}, or name an interface that is here (see the check interface)",
                                      "unset {0}，或改成本机有的网卡（见检查 interface）", variable.name),
                            "A5", {{"variable", std::string(variable.name)}}));
  }
  if (const auto address = machine.environment.Get("HCCL_IF_IP"); address && !address->empty()) {
    const auto has_it = [&](const NetworkInterface& one) {
      return std::find(one.addresses.begin(), one.addresses.end(), *address) != one.addresses.end();
    };
    if (std::any_of(interfaces.begin(), interfaces.end(), has_it)) {
      good.push_back("HCCL_IF_IP=" + base::Printable(*address));
    } else {
      findings.push_back(Fail(Bilingual("HCCL_IF_IP={} is no address of this host", "HCCL_IF_IP={} 不是本机地址",
                                        base::Printable(*address)),
                              Bilingual("unset HCCL_IF_IP, or set it to this host's own address on each host",
                                        "unset HCCL_IF_IP，或在每台主机上设为其自己的地址"),
                              "A5", {{"variable", "HCCL_IF_IP"}}));
    }
  }
  if (findings.empty()) {
    findings.push_back(
        good.empty() ? Ok(Bilingual("none is set: collectives choose by themselves", "均未设置：由集合通信库自行选择"))
                     : Ok(Bilingual("{}", "{}", base::Join(good, ", "))));
  }
  return findings;
}

std::vector<Finding> CheckHostName(const MachineUnderTest& machine) {
  const std::string name = machine.kernel->HostName();
  if (name.empty()) {
    return {
        CannotTell(Bilingual("this host has no name", "本机没有主机名"), Bilingual("hostname NAME", "hostname NAME"))};
  }
  const std::string shown = base::Printable(name);
  const base::BilingualText fix = Bilingual(
      "add it to /etc/hosts with the address of the interface that the hosts share, or set "
      "GLOO_SOCKET_IFNAME",
      "在 /etc/hosts 中为其加上主机间共用网卡的地址，或设置 GLOO_SOCKET_IFNAME");
  const auto addresses = machine.kernel->Resolve(name);
  if (!addresses) {
    const base::BilingualText seen = Bilingual("the name {} cannot be looked up: {}", "主机名 {} 无法解析：{}", shown,
                                               base::Printable(addresses.error().message));
    return {machine.nodes > 1 ? Fail(seen, fix, "A5") : Warn(seen, fix, "A5")};
  }
  const std::string first = addresses->front();
  const Figures figures = {{"name", shown}, {"address", first}};
  bool own = false;
  bool loopback = first.starts_with("127.") || first == "::1";
  for (const NetworkInterface& interface : machine.kernel->Interfaces()) {
    if (std::find(interface.addresses.begin(), interface.addresses.end(), first) != interface.addresses.end()) {
      own = true;
      loopback = loopback || interface.loopback;
    }
  }
  if (!own && !loopback) {
    return {Fail(Bilingual("{} resolves to {}, which is no address of this host: ranks would be sent elsewhere",
                           "{} 解析为 {}，不是本机地址：rank 会连到别处", shown, first),
                 fix, "A5", figures)};
  }
  if (loopback && machine.nodes > 1) {
    return {Warn(Bilingual("{} resolves to {}: other hosts would be told to call themselves",
                           "{} 解析为 {}：其他主机会连到它们自己", shown, first),
                 fix, "A5", figures)};
  }
  return {Ok(Bilingual("{} is {}, an address of this host", "{} 为 {}，是本机地址", shown, first), figures)};
}

std::vector<Finding> CheckMasterPort(const MachineUnderTest& machine) {
  const auto value = machine.environment.Get("MASTER_PORT");
  const bool named = value && !value->empty();
  const auto parsed = named ? base::ParseInteger<int>(*value) : std::optional(kUsualMasterPort);
  if (!parsed || *parsed < 1 || *parsed > 65535) {
    return {Fail(
        Bilingual("MASTER_PORT={} is no port", "MASTER_PORT={} 不是端口号", base::Printable(value.value_or(""))),
        Bilingual("unset MASTER_PORT: fulldeck run takes a free one", "unset MASTER_PORT：fulldeck run 会自选空闲端口"),
        "C5")};
  }
  const Figures figures = {{"port", std::to_string(*parsed)}};
  const auto bound = machine.kernel->TryPort(*parsed);
  if (bound) return {Ok(Bilingual("port {} was bound and let go", "已绑定并释放端口 {}", *parsed), figures)};
  if (bound.error().system_error != EADDRINUSE) {
    return {CannotTell(Bilingual("port {} cannot be tried: {}", "无法尝试端口 {}：{}", *parsed,
                                 base::Printable(bound.error().message)),
                       Bilingual("take one above 1024", "换用 1024 以上的端口"), "C5", figures)};
  }
  const auto owner = net::ListenerOnPort(*parsed, machine.root);
  const base::BilingualText by = owner ? Bilingual(" by {}", "，占用者：{}", *owner)
                                       : Bilingual(", by a process of another user or one that has just ended",
                                                   "，占用者为其他用户的或刚结束的进程");
  const base::BilingualText seen = {fmt::format("port {} is taken{}", *parsed, by.english),
                                    fmt::format("端口 {} 已被占用{}", *parsed, by.chinese)};
  if (named) {
    return {Fail(seen,
                 Bilingual("stop that process, or unset MASTER_PORT: fulldeck run takes a free one",
                           "结束该进程，或 unset MASTER_PORT：fulldeck run 会自选空闲端口"),
                 "C5", figures)};
  }
  return {Warn(seen,
               Bilingual("fulldeck run takes a free one; torchrun needs --master-port",
                         "fulldeck run 会自选空闲端口；torchrun 需要 --master-port"),
               "C5", figures)};
}

}  // namespace fulldeck::doctor
