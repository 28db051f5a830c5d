#include "net/master_port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <set>

namespace fulldeck::net {
namespace {

using testing::HasSubstr;

// A server as rank 0 creates it: with the option, and listening.
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
  auto port = MasterPort::Free();
  ASSERT_TRUE(port.ok());
  EXPECT_GT(port->number(), 0);
  EXPECT_FALSE(Listen(port->number(), false).valid());
  port->LetStoreBind();
  EXPECT_FALSE(Listen(port->number(), false).valid());
  EXPECT_TRUE(Listen(port->number(), true).valid());
}

TEST(MasterPort, CannotBeTakenBeforeTheRanksStartNorWhileRankZeroListens) {
  auto port = MasterPort::Free();
  ASSERT_TRUE(port.ok());
  EXPECT_FALSE(Listen(port->number(), true).valid());
  auto again = MasterPort::Named(port->number());
  EXPECT_FALSE(again.ok());
  port->LetStoreBind();
  const base::UniqueFd store = Listen(port->number(), true);
  ASSERT_TRUE(store.valid());
  EXPECT_FALSE(Listen(port->number(), true).valid());
}

TEST(MasterPort, WorksWithoutANameThatAnotherUserTook) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  int number = 0;
  {
    const auto free = MasterPort::Free();
    ASSERT_TRUE(free.ok());
    number = free->number();
  }
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t unrelated = fork();
  if (unrelated == 0) {
    if (setuid(61001) != 0) _exit(1);
    const std::string name = "fulldeck-master-port-0-" + std::to_string(number);
    const int squatter = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const bool took =
        bind(squatter, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(squatter, 8) == 0;
    if (write(ready[1], took ? "+" : "-", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, '+');
  EXPECT_TRUE(MasterPort::Named(number).ok());
  kill(unrelated, SIGKILL);
  waitpid(unrelated, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(MasterPort, IsNeverGivenToSomebodyWhoRequestsAnyPort) {
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
    auto free = MasterPort::Free();
    ASSERT_TRUE(free.ok());
    number = free->number();
    free->LetStoreBind();
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
  auto first = MasterPort::Free();
  ASSERT_TRUE(first.ok());
  first->LetStoreBind();
  const auto second = MasterPort::Named(first->number());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("held by another fulldeck run"));
}

TEST(MasterPort, CanBeTakenAgainAfterItsStoreEnded) {
  int number = 0;
  {
    auto port = MasterPort::Free();
    ASSERT_TRUE(port.ok());
    number = port->number();
    port->LetStoreBind();
    EXPECT_TRUE(Listen(number, true).valid());
  }
  EXPECT_TRUE(MasterPort::Named(number).ok());
}

}  // namespace
}  // namespace fulldeck::net
