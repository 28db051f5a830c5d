#include "runtime/session/session_store.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/files/unique_fd.h"
#include "base/text.h"
#include "fulldeck/error.h"

namespace fulldeck::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    throw Error("MASTER_ADDR is \"" + base::Printable(host) +
                "\", and no address is known for it: " + gai_strerror(code) + ".");
  }
  return {found, &freeaddrinfo};
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// If all ranks are on this node, no other node needs to reach the store.
std::string AddressOf(const LaunchFacts& facts) {
  if (facts.store_is_launchers || !facts.one_node() || IsLoopback(facts.master_address)) return facts.master_address;
  return "127.0.0.1";
}

// Binds to this address only: torch's own server would listen on all interfaces.
base::UniqueFd Bind(const std::string& host, std::uint16_t port) {
  const Addresses addresses = Resolve(host, port);
  int error = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    base::UniqueFd descriptor(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!descriptor.valid()) {
      error = errno;
      continue;
    }
    // The launcher reserves the port for this rank with a socket that is bound but does not listen.
    const int on = 1;
    setsockopt(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(descriptor.get(), at->ai_addr, at->ai_addrlen) == 0 && listen(descriptor.get(), 1024) == 0) {
      return descriptor;
    }
    error = errno;
  }
  throw Error("rank 0 cannot listen at " + base::Printable(host) + ", port " + std::to_string(port) + ": " +
              std::strerror(error) +
              (error == EADDRINUSE
                   ? ". Another program has the port: set MASTER_PORT to a free one, or let fulldeck run "
                     "find one."
                   : ". Check MASTER_ADDR and MASTER_PORT."));
}

// Torch's own client waits a second or more between attempts.
void WaitForListener(const std::string& host, std::uint16_t port, int rank, steady_clock::time_point deadline) {
  const Addresses addresses = Resolve(host, port);
  int error = 0;
  do {
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      const base::UniqueFd descriptor(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (descriptor.valid() && connect(descriptor.get(), at->ai_addr, at->ai_addrlen) == 0) return;
      error = errno;
    }
    std::this_thread::sleep_for(milliseconds(5));
  } while (steady_clock::now() < deadline);
  throw Error("rank " + std::to_string(rank) + " found nobody listening at " + base::Printable(host) + ", port " +
              std::to_string(port) + ": " + std::strerror(error) +
              ". Rank 0 has not started or has failed; see its output, and check MASTER_ADDR and MASTER_PORT.");
}

c10::intrusive_ptr<c10d::Store> Prefixed(const LaunchFacts& facts, const c10::intrusive_ptr<c10d::Store>& store) {
  return c10::make_intrusive<c10d::PrefixStore>("fulldeck/attempt_" + facts.attempt, store);
}

c10::intrusive_ptr<c10d::Store> Connect(const LaunchFacts& facts, bool serves, milliseconds timeout) {
  const std::string host = AddressOf(facts);
  c10d::TCPStoreOptions options;
  options.port = facts.master_port;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  base::UniqueFd listener;
  if (serves && IsLoopback(host)) {
    listener = Bind(host, facts.master_port);
    options.masterListenFd = listener.get();
  }
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
    static_cast<void>(listener.Release());  // the store's server now owns and closes it
    return store;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error("rank " + std::to_string(facts.rank) + " cannot " + (serves ? "serve" : "reach") + " the store at " +
                base::Printable(host) + ", port " + std::to_string(facts.master_port) + ": " +
                base::Printable(text.substr(0, text.find('\n'))));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> OpenStore(const LaunchFacts& facts, milliseconds timeout) {
  if (facts.world_size == 1) return Prefixed(facts, c10::make_intrusive<c10d::HashStore>());
  const bool serves = facts.rank == 0 && !facts.store_is_launchers;
  if (!serves) {
    WaitForListener(AddressOf(facts), facts.master_port, facts.rank, steady_clock::now() + timeout);
  }
  return Prefixed(facts, Connect(facts, serves, timeout));
}

c10::intrusive_ptr<c10d::Store> SecondConnection(const LaunchFacts& facts, const c10::intrusive_ptr<c10d::Store>& store,
                                                 milliseconds timeout) {
  if (facts.world_size == 1) return store;
  return Prefixed(facts, Connect(facts, false, timeout));
}

}  // namespace fulldeck::runtime
