#include "net/host_address.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "loop_sockets.h"
#include "net/port_owner.h"
#include "temporary_folder.h"

namespace fulldeck::net {
namespace {

HostAddress Numeric(const std::string& text, int port = 80) {
  const auto resolved = ResolveHost(text, port);
  EXPECT_TRUE(resolved.ok()) << text;
  return resolved.ok() ? resolved->front() : HostAddress();
}

TEST(HostAddress, IsWrittenInTheUsualForm) {
  EXPECT_EQ(Numeric("10.0.0.1", 29500).WithPort(), "10.0.0.1:29500");
  EXPECT_EQ(Numeric("::1", 29500).WithPort(), "[::1]:29500");
  EXPECT_EQ(Numeric("::1", 29500).port(), 29500);
  EXPECT_EQ(Numeric("::ffff:10.0.0.2").Numeric(), "10.0.0.2") << "IPv4 that came through IPv6";
  EXPECT_EQ(HostAddress().Numeric(), "unknown");
}

TEST(HostAddress, KnowsWhichAddressesAreLocal) {
  EXPECT_TRUE(Numeric("127.0.0.1").IsOfThisHost());
  EXPECT_TRUE(Numeric("127.0.1.1").IsLoopback());
  EXPECT_TRUE(Numeric("::1").IsLoopback());
  EXPECT_FALSE(Numeric("192.0.2.1").IsLoopback());
  EXPECT_FALSE(Numeric("192.0.2.1").IsOfThisHost()) << "an address for documents";
  EXPECT_FALSE(Numeric("2001:db8::1").IsOfThisHost());
}

TEST(HostAddress, DistinguishesNumbersFromNames) {
  EXPECT_TRUE(IsNumericAddress("10.0.0.1"));
  EXPECT_TRUE(IsNumericAddress("::1"));
  EXPECT_FALSE(IsNumericAddress("localhost"));
  EXPECT_FALSE(IsNumericAddress("10.0.0.1.example"));
  EXPECT_TRUE(Numeric("localhost").IsLoopback());
}

TEST(HostAddress, ASecondListenerFindsThePortTaken) {
  const auto first = ListenOn(Numeric("127.0.0.1", 0));
  ASSERT_TRUE(first.ok());
  const auto second = ListenOn(LocalEnd(first->get()));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().system_error, EADDRINUSE);
  const auto elsewhere = ListenOn(Numeric("192.0.2.1", 0));
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_EQ(elsewhere.error().system_error, EADDRNOTAVAIL);
}

TEST(HostAddress, AllInterfacesTakeIpv4) {
  const auto listener = ListenOn(HostAddress::Any(0));
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(::fulldeck::testing::ConnectTo(LocalEnd(listener->get()).port()).valid());
}

TEST(PortOwner, IsThisProcessForAPortThatItListensOn) {
  int port = 0;
  {
    const base::UniqueFd listener = ::fulldeck::testing::ListenOnLoopback(0, port);
    const auto owner = ListenerOnPort(port);
    ASSERT_TRUE(owner.has_value());
    EXPECT_EQ(owner->find("pid " + std::to_string(getpid()) + " ("), 0U) << *owner;
  }
  EXPECT_FALSE(ListenerOnPort(port).has_value());
}

TEST(PortOwner, ReadsTheTablesOfTheKernel) {
  const ::fulldeck::testing::TemporaryFolder folder;
  folder.Write("proc/net/tcp",
               "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
               "   0: 0100007F:733C 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 1111 1\n"
               "   1: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2222 1\n"
               "   2: nonsense\n");
  folder.Write("proc/42/comm", "python3\n");
  folder.Write("proc/42/cmdline", std::string("python3\0train\x1b.py\0", 18));
  std::filesystem::create_directories(folder.path() / "proc/42/fd");
  std::filesystem::create_symlink("socket:[2222]", folder.path() / "proc/42/fd/3");
  std::filesystem::create_directories(folder.path() / "proc/41/fd");
  std::filesystem::create_symlink("socket:[1111]", folder.path() / "proc/41/fd/3");
  const base::SystemRoot root(folder.string());
  EXPECT_EQ(ListenerOnPort(29500, root), "pid 42 (python3 train?.py)");
  EXPECT_EQ(ListenerOnPort(29501, root), std::nullopt);
}

}  // namespace
}  // namespace fulldeck::net
