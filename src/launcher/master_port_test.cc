#include "launcher/master_port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

namespace fulldeck::launcher {
namespace {

using testing::HasSubstr;

// A server as rank 0 makes it: with the option, and listening.
base::UniqueFd Listen(int port, bool reuse) {
  base::UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (bind(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  if (listen(server.get(), 8) != 0) return {};
  return server;
}

TEST(MasterPort, LetsAStoreListenBesideItAndRefusesPlainPrograms) {
  const auto port = MasterPort::Free();
  ASSERT_TRUE(port.ok());
  EXPECT_GT(port->number(), 0);
  EXPECT_FALSE(Listen(port->number(), false).valid());
  EXPECT_TRUE(Listen(port->number(), true).valid());
}

TEST(MasterPort, IsNeverGivenToSomebodyWhoAsksForAnyPort) {
  const auto port = MasterPort::Free();
  ASSERT_TRUE(port.ok());
  std::set<int> seen;
  for (int i = 0; i < 2000; ++i) {
    const auto other = MasterPort::Free();
    ASSERT_TRUE(other.ok());
    seen.insert(other->number());
  }
  EXPECT_FALSE(seen.contains(port->number()));
}

TEST(MasterPort, NamesTheProcessThatHasIt) {
  int number = 0;
  base::UniqueFd taken;
  {
    const auto free = MasterPort::Free();
    ASSERT_TRUE(free.ok());
    number = free->number();
    taken = Listen(number, true);
  }
  ASSERT_TRUE(taken.valid());
  const auto refused = MasterPort::Named(number);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("port " + std::to_string(number) + " is taken by"));
  EXPECT_THAT(refused.error().message, HasSubstr("pid " + std::to_string(getpid())));
  EXPECT_THAT(refused.error().message, HasSubstr("--master-port"));
}

TEST(MasterPort, HasOneHolderAmongLaunchers) {
  const auto first = MasterPort::Free();
  ASSERT_TRUE(first.ok());
  const auto second = MasterPort::Named(first->number());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("held by another fulldeck run"));
}

TEST(MasterPort, CanBeTakenAgainAfterItsStoreEnded) {
  int number = 0;
  {
    const auto port = MasterPort::Free();
    ASSERT_TRUE(port.ok());
    number = port->number();
    EXPECT_TRUE(Listen(number, true).valid());
  }
  EXPECT_TRUE(MasterPort::Named(number).ok());
}

}  // namespace
}  // namespace fulldeck::launcher
