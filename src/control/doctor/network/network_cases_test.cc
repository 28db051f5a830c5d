// Expected verdicts of the checks of the group "network".
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>

#include "doctor/machine/fake_machine_for_test.h"
#include "doctor/network/network_checks.h"
#include "net/host_address.h"

namespace fulldeck::doctor {
namespace {

void Nothing(FakeMachine&) {}
void TwoNodes(FakeMachine& fake) {
  fake.machine.nodes = 2;
}
void TwoCards(FakeMachine& fake) {
  fake.AddCard(0);
  fake.AddCard(1);
}

// A port without a listener.
int FreePort() {
  const auto listener = net::ListenOn(net::HostAddress::Any(0));
  return listener ? net::LocalEnd(listener->get()).port() : 1;
}

}  // namespace

std::vector<CheckCase> NetworkCases() {
  return {
      {"loopback", "up", Verdict::kOk, "", "bytes there and back", Nothing},
      {"loopback", "down", Verdict::kFail, "I9", "ip link set lo up",
       [](FakeMachine& fake) { fake.kernel.echo_error = ENETUNREACH; }},

      {"interface", "one", Verdict::kOk, "", "eth0 (10.0.0.5, MTU 1500), has the default route", Nothing},
      {"interface", "one, and what to set for the cards here", Verdict::kOk, "",
       "GLOO_SOCKET_IFNAME=eth0 ECCL_SOCKET_IFNAME=eth0", TwoCards},
      {"interface", "two for several hosts", Verdict::kWarn, "A5", "2 interfaces could be taken",
       [](FakeMachine& fake) {
         TwoNodes(fake);
         fake.kernel.interfaces.push_back({"ib0", true, false, 2044, {"10.1.0.5"}});
       }},
      {"interface", "two, and a variable says which", Verdict::kOk, "", "eth0",
       [](FakeMachine& fake) {
         TwoNodes(fake);
         fake.kernel.interfaces.push_back({"ib0", true, false, 2044, {"10.1.0.5"}});
         fake.machine.environment.Set("GLOO_SOCKET_IFNAME", "eth0");
       }},
      {"interface", "none for several hosts", Verdict::kFail, "A5", "--network host",
       [](FakeMachine& fake) {
         TwoNodes(fake);
         fake.kernel.interfaces[1].up = false;
       }},
      {"interface", "none, on one host", Verdict::kOk, "", "which one host does not need",
       [](FakeMachine& fake) { fake.kernel.interfaces.resize(1); }},

      {"interface-variables", "none", Verdict::kOk, "", "none is set", Nothing},
      {"interface-variables", "right ones", Verdict::kOk, "", "NCCL_SOCKET_IFNAME==eth0",
       [](FakeMachine& fake) {
         fake.machine.environment.Set("NCCL_SOCKET_IFNAME", "=eth0");
         fake.machine.environment.Set("ECCL_SOCKET_IFNAME", "^docker,lo");
         fake.machine.environment.Set("MCCL_SOCKET_IFNAME", "enp,eth");
         fake.machine.environment.Set("HCCL_IF_IP", "10.0.0.5");
       }},
      {"interface-variables", "hard-coded for another machine", Verdict::kFail, "A5", "there is no interface ens33",
       [](FakeMachine& fake) { fake.machine.environment.Set("GLOO_SOCKET_IFNAME", "ens33"); }},
      {"interface-variables", "down", Verdict::kFail, "A5", "unset NCCL_SOCKET_IFNAME",
       [](FakeMachine& fake) {
         fake.kernel.interfaces[1].up = false;
         fake.machine.environment.Set("NCCL_SOCKET_IFNAME", "eth0");
       }},
      {"interface-variables", "the loopback for several hosts", Verdict::kFail, "A5", "lo is the loopback",
       [](FakeMachine& fake) {
         TwoNodes(fake);
         fake.machine.environment.Set("GLOO_SOCKET_IFNAME", "lo");
       }},
      {"interface-variables", "another host's address", Verdict::kFail, "A5", "HCCL_IF_IP=10.9.9.9 is no address",
       [](FakeMachine& fake) { fake.machine.environment.Set("HCCL_IF_IP", "10.9.9.9"); }},

      {"host-name", "own address", Verdict::kOk, "", "node1 is 10.0.0.5", Nothing},
      {"host-name", "no answer", Verdict::kWarn, "A5", "cannot be looked up",
       [](FakeMachine& fake) { fake.kernel.resolved.clear(); }},
      {"host-name", "no answer, several hosts", Verdict::kFail, "A5", "/etc/hosts",
       [](FakeMachine& fake) {
         TwoNodes(fake);
         fake.kernel.resolved.clear();
       }},
      {"host-name", "another host's address", Verdict::kFail, "A5", "no address of this host",
       [](FakeMachine& fake) { fake.kernel.resolved = {"10.0.0.99"}; }},
      {"host-name", "the loopback, several hosts", Verdict::kWarn, "A5", "call themselves",
       [](FakeMachine& fake) {
         TwoNodes(fake);
         fake.kernel.resolved = {"127.0.1.1"};
       }},

      {"master-port", "free", Verdict::kOk, "", "port 29500 was bound", Nothing},
      {"master-port", "the usual one is taken", Verdict::kWarn, "C5", "fulldeck run takes a free one",
       [](FakeMachine& fake) { fake.kernel.port_error = EADDRINUSE; }},
      {"master-port", "the named one is taken", Verdict::kFail, "C5", "port 4000 is taken by pid 77 (python3 old.py)",
       [](FakeMachine& fake) {
         fake.kernel.port_error = EADDRINUSE;
         fake.machine.environment.Set("MASTER_PORT", "4000");
         fake.Write(
             "/proc/net/tcp",
             "  sl  local_address rem_address   st\n"
             "   0: 00000000:0FA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1\n");
         fake.Write("/proc/77/cmdline", std::string_view("python3\0old.py", 14));
         std::filesystem::create_directories(fake.tree.path() / "proc/77/fd");
         std::filesystem::create_symlink("socket:[12345]", fake.tree.path() / "proc/77/fd/3");
       }},
      {"master-port", "no number", Verdict::kFail, "C5", "MASTER_PORT=auto is no port",
       [](FakeMachine& fake) { fake.machine.environment.Set("MASTER_PORT", "auto"); }},

      {"card-links", "all lanes", Verdict::kOk, "", "2 cards, each on all of its PCIe lanes", TwoCards},
      {"card-links", "some lanes", Verdict::kWarn, "", "gcu 1 uses 4 of its 16 PCIe lanes",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Write("/sys/bus/pci/devices/0000:02:00.0/current_link_width", "4\n");
       }},
      {"card-links", "not told", Verdict::kCannotTell, "", "the PCIe link of gcu 0",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Remove("/sys/bus/pci/devices/0000:01:00.0/max_link_width");
       }},

      {"peer-to-peer", "passed through", Verdict::kOk, "", "2 cards (2 on NUMA node 0)", TwoCards},
      {"peer-to-peer", "translated", Verdict::kWarn, "I3", "iommu=pt",
       [](FakeMachine& fake) {
         TwoCards(fake);
         fake.Write("/sys/bus/pci/devices/0000:01:00.0/iommu_group/type", "DMA-FQ\n");
       }},
      {"peer-to-peer", "translated, NVIDIA", Verdict::kWarn, "I3", "export NCCL_P2P_DISABLE=1",
       [](FakeMachine& fake) {
         for (int card = 0; card < 2; ++card) fake.AddCard(card).collective_backend = "nccl";
         fake.Write("/sys/bus/pci/devices/0000:01:00.0/iommu_group/type", "DMA\n");
       }},
      {"peer-to-peer", "translated, and turned off", Verdict::kOk, "", "NCCL_P2P_DISABLE=1 is set",
       [](FakeMachine& fake) {
         for (int card = 0; card < 2; ++card) fake.AddCard(card).collective_backend = "nccl";
         fake.Write("/sys/bus/pci/devices/0000:01:00.0/iommu_group/type", "DMA\n");
         fake.machine.environment.Set("NCCL_P2P_DISABLE", "1");
       }},

      {"peer-reach", "there", Verdict::kOk, "", "20 messages there and back",
       [](FakeMachine& fake) { fake.StartPeer(); }},
      {"peer-reach", "nobody listens", Verdict::kCannotTell, "I9", "fulldeck doctor --listen",
       [](FakeMachine& fake) { fake.machine.peers = {"127.0.0.1:" + std::to_string(FreePort())}; }},
      {"peer-reach", "no way there", Verdict::kFail, "I9", "the firewall",
       [](FakeMachine& fake) { fake.machine.peers = {"255.255.255.255"}; }},
      {"peer-reach", "no host at all", Verdict::kFail, "I9", "'a:b' is no HOST or HOST:PORT",
       [](FakeMachine& fake) { fake.machine.peers = {"a:b"}; }},

      {"peer-reach", "another token", Verdict::kCannotTell, "I9", "with the same FULLDECK_TOKEN",
       [](FakeMachine& fake) {
         fake.StartPeer();
         fake.machine.environment.Set("FULLDECK_TOKEN", "of somebody else");
       }},

      {"peer-mtu", "whole", Verdict::kOk, "", "pass whole", [](FakeMachine& fake) { fake.StartPeer(); }},
      {"peer-mtu", "large packets are swallowed", Verdict::kFail, "I9", "1400 bytes pass",
       [](FakeMachine& fake) {
         PeerFaults faults;
         faults.largest_datagram = 1400;
         fake.StartPeer(faults);
       }},
      {"peer-mtu", "no answer", Verdict::kCannotTell, "I9", "no datagram is answered",
       [](FakeMachine& fake) { fake.machine.peers = {"127.0.0.1:" + std::to_string(FreePort())}; }},

      {"peer-bandwidth", "fast", Verdict::kOk, "", "MB/s", [](FakeMachine& fake) { fake.StartPeer(); }},
      {"peer-bandwidth", "slow", Verdict::kFail, "I9", "ethtool",
       [](FakeMachine& fake) {
         PeerFaults faults;
         faults.pause = std::chrono::milliseconds(300);
         fake.StartPeer(faults);
       }},
  };
}

namespace {

TEST(NetworkChecks, OfOtherNodesDoNotAriseWithoutAny) {
  FakeMachine fake;
  EXPECT_TRUE(CheckPeerReach(fake.machine).empty());
  EXPECT_TRUE(CheckPeerMtu(fake.machine).empty());
  EXPECT_TRUE(CheckPeerBandwidth(fake.machine).empty());
}

TEST(NetworkChecks, NameEveryNode) {
  FakeMachine fake;
  fake.StartPeer();
  fake.machine.peers.push_back("127.0.0.1:" + std::to_string(FreePort()));
  const auto findings = CheckPeerReach(fake.machine);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].verdict, Verdict::kOk) << findings[0].evidence.english;
  EXPECT_EQ(findings[1].verdict, Verdict::kCannotTell);
}

TEST(PeerListener, ListensWhereOtherNodesReachIt) {
  const auto loopback = net::ResolveHost("127.0.1.1", 0);
  const auto outside = net::ResolveHost("10.0.0.7", 0);
  ASSERT_TRUE(loopback.ok() && outside.ok());
  const NetworkInterface lo{"lo", true, true, 65536, {"127.0.0.1", "::1"}};
  const NetworkInterface eth0{"eth0", true, false, 1500, {"fe80::1", "10.0.0.7"}};
  const NetworkInterface eth1{"eth1", true, false, 1500, {"10.0.1.7"}};
  const NetworkInterface down{"eth2", false, false, 1500, {"10.0.2.7"}};
  EXPECT_EQ(*ReachableAddress("node2", outside->front(), {lo, eth0, eth1}), "10.0.0.7") << "the name's own";
  EXPECT_EQ(*ReachableAddress("node2", loopback->front(), {lo, eth0, down}), "10.0.0.7");
  EXPECT_EQ(*ReachableAddress("node2", loopback->front(), {lo, down}), "127.0.1.1")
      << "no other node can reach this one";
  const auto several = ReachableAddress("node2", loopback->front(), {lo, eth0, eth1});
  ASSERT_FALSE(several.ok());
  EXPECT_NE(several.error().message.find("10.0.0.7, 10.0.1.7"), std::string::npos) << several.error().message;
}

// What an unauthenticated peer could make two listeners do to each other, or to a third party.
TEST(PeerListener, AnswersNeitherUnauthenticatedPeersNorAnswersAndNotTooOften) {
  const auto loopback = net::ResolveHost("127.0.0.1", 0);
  ASSERT_TRUE(loopback.ok());
  auto listener = PeerListener::Open(loopback->front(), "token");
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  const base::UniqueFd probe(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto at = net::ResolveHost("127.0.0.1", listener->port());
  ASSERT_TRUE(at.ok());
  ASSERT_EQ(connect(probe.get(), at->front().get(), at->front().length()), 0);
  const auto send_request = [&](std::string_view bytes, std::chrono::milliseconds timeout = std::chrono::milliseconds(
                                                            0)) -> std::optional<PeerMessage> {
    EXPECT_EQ(send(probe.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    const auto until = std::chrono::steady_clock::now() + timeout;
    PeerMessage answer{};
    do {
      listener->Serve(std::chrono::milliseconds(20));
      if (recv(probe.get(), answer.data(), answer.size(), 0) == static_cast<ssize_t>(answer.size())) return answer;
    } while (std::chrono::steady_clock::now() < until);
    return std::nullopt;
  };
  const auto text = [](const PeerMessage& message) { return std::string_view(message.data(), message.size()); };
  const PeerNonce nonce = NewPeerNonce();
  EXPECT_FALSE(send_request("FDDOCTOR" + std::string(600, 'x')));
  EXPECT_FALSE(send_request(text(MakePeerRequest(PeerRequest::kDatagram, nonce, "another"))));
  const auto answer =
      send_request(text(MakePeerRequest(PeerRequest::kDatagram, nonce, "token")), std::chrono::seconds(20));
  ASSERT_TRUE(answer);
  EXPECT_EQ(ReadPeerAnswer(*answer, PeerRequest::kDatagram, nonce, "token"), sizeof(PeerMessage));
  // The answer of another listener with a forged source address: the two would answer each other forever.
  EXPECT_FALSE(send_request(text(*answer)));
  // A sender with a forged address can direct only a limited number of answers at a third party.
  const PeerMessage request = MakePeerRequest(PeerRequest::kDatagram, nonce, "token");
  for (int i = 0; i < 4 * kMaxDatagramsPerSecond; ++i) {
    ASSERT_EQ(send(probe.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  }
  const auto begun = std::chrono::steady_clock::now();
  int answers = 0;
  PeerMessage got{};
  listener->Serve(std::chrono::milliseconds(200));
  while (recv(probe.get(), got.data(), got.size(), 0) > 0) ++answers;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_LE(answers, kMaxDatagramsPerSecond * static_cast<int>(seconds + 1));
}

}  // namespace
}  // namespace fulldeck::doctor
