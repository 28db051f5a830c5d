#include "torch_backend/gloo_groups.h"

#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "collectives/group.h"

namespace fulldeck::torch_backend {
namespace {

using c10d::ProcessGroupGloo;

// We create objects of a class whose members we only know through our own declarations. Members held by pointer have
// the size of a pointer, whatever they point to. That the whole object is no larger than declared is checked when the
// first one is created.
static_assert(sizeof(std::shared_ptr<::gloo::Context>) == 2 * sizeof(void*));
static_assert(sizeof(std::shared_ptr<::gloo::transport::Device>) == 2 * sizeof(void*));
static_assert(std::is_base_of_v<c10d::Backend, ProcessGroupGloo>);

constexpr std::size_t kGuardBytes = 512;
constexpr unsigned char kGuard = 0xa5;

c10::intrusive_ptr<ProcessGroupGloo> Construct(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               const c10::intrusive_ptr<ProcessGroupGloo::Options>& options) {
  auto* memory = static_cast<unsigned char*>(::operator new(sizeof(ProcessGroupGloo) + kGuardBytes));
  std::memset(memory + sizeof(ProcessGroupGloo), kGuard, kGuardBytes);
  ProcessGroupGloo* made = nullptr;
  try {
    made = new (memory) ProcessGroupGloo(store, rank, size, options);
  } catch (...) {
    ::operator delete(memory);
    throw;
  }
  auto group = c10::intrusive_ptr<ProcessGroupGloo>::unsafe_steal_from_new(made);
  for (std::size_t i = 0; i < kGuardBytes; ++i) {
    TORCH_CHECK(
        memory[sizeof(ProcessGroupGloo) + i] == kGuard,
        "fulldeck: Gloo's backend in this torch is larger than in the headers that fulldeck was built with; build "
        "fulldeck against this torch.");
  }
  return group;
}

// The local address on the route to the store's server; empty: unknown, or the server is on this node.
std::string AddressTowards(const c10d::TCPStore& store) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(store.getHost().c_str(), std::to_string(store.getPort()).c_str(), &hints, &found) != 0) return {};
  std::string address;
  for (const addrinfo* at = found; at != nullptr && address.empty(); at = at->ai_next) {
    const int descriptor = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    sockaddr_storage self = {};
    socklen_t length = sizeof self;
    char text[NI_MAXHOST] = {};
    // Connecting a datagram socket sends nothing; it only selects a route.
    if (connect(descriptor, at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&self), &length) == 0 &&
        getnameinfo(reinterpret_cast<const sockaddr*>(&self), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
            0) {
      address = text;
    }
    close(descriptor);
  }
  freeaddrinfo(found);
  if (address == "::1" || address.rfind("127.", 0) == 0) return {};
  return address;
}

std::vector<std::shared_ptr<::gloo::transport::Device>> Interfaces(const c10::intrusive_ptr<c10d::Store>& store) {
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices;
  if (const char* names = std::getenv("GLOO_SOCKET_IFNAME"); names != nullptr && *names != '\0') {
    for (const std::string_view name : base::Split(names, ',')) {
      devices.push_back(ProcessGroupGloo::createDeviceForInterface(std::string(name)));
    }
    return devices;
  }
  c10d::Store* under = store.get();
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(under)) under = prefixed->getUnderlyingStore().get();
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(under)) {
    const std::string address = AddressTowards(*tcp);
    if (!address.empty()) return {ProcessGroupGloo::createDeviceForHostname(address)};
  }
  return {ProcessGroupGloo::createDefaultDevice()};
}

bool IsPipeSignalPending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

sigset_t PipeSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

WithoutPipeSignal::WithoutPipeSignal() {
  const sigset_t pipe = PipeSignal();
  pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  was_pending_ = IsPipeSignalPending();
}

WithoutPipeSignal::~WithoutPipeSignal() {
  const sigset_t pipe = PipeSignal();
  constexpr timespec kAtOnce{};
  if (!was_pending_ && IsPipeSignalPending()) sigtimedwait(&pipe, nullptr, &kAtOnce);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

c10::intrusive_ptr<c10d::Backend> MakeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                std::chrono::milliseconds timeout) {
  const WithoutPipeSignal no_signal;
  auto options = ProcessGroupGloo::Options::create(timeout);
  options->devices = Interfaces(store);
  options->threads = 2;
  const auto group = Construct(store, rank, size, options);
  TORCH_CHECK(group->getBackendName() == "gloo" && group->getRank() == rank && group->getSize() == size,
              "fulldeck: Gloo's backend in this torch is not the one of the headers that fulldeck was built with.");
  std::vector<at::Tensor> proof = {at::ones({3}, at::kInt)};
  group->allreduce(proof)->wait(timeout);
  TORCH_CHECK(at::equal(proof[0], at::full({3}, size, at::kInt)),
              "fulldeck: an all_reduce of Gloo's between the hosts gave a wrong sum.");
  return group;
}

}  // namespace fulldeck::torch_backend
