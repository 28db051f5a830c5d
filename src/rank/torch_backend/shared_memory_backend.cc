#include "torch_backend/shared_memory_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/env.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "torch_backend/gloo_groups.h"
#include "torch_backend/quiet_dispatch.h"
#include "torch_backend/start_call.h"
#include "torch_backend/tensor_staging.h"
#include "wire/sha256.h"
#include "wire/variables.h"

namespace fulldeck::torch_backend {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long calls in progress may take to end when a group is shut down.
constexpr milliseconds kShutdownGrace = std::chrono::seconds(5);
constexpr milliseconds kExitGrace = std::chrono::seconds(1);
// How long they may take after the abort.
constexpr milliseconds kAbortGrace = std::chrono::seconds(5);

// The store's secret keeps groups apart. Other users of this node may be able to read it there, because torch's store
// has no access control. They cannot read the launcher's secret, which is only in the environment of the run's ranks.
std::string KeyOf(const std::string& store_secret) {
  const char* of_run = std::getenv(wire::kCollectivesKeyVariable);
  if (of_run == nullptr || *of_run == '\0') return store_secret;
  return wire::HexOf(wire::HmacSha256(of_run, store_secret));
}

const c10d::Store* BelowAllPrefixes(const c10::intrusive_ptr<c10d::Store>& store) {
  c10::intrusive_ptr<c10d::Store> under = store;
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(under.get())) under = prefixed->getUnderlyingStore();
  return under.get();
}

// Every backend of this process. Never destroyed, because threads may outlive static objects.
struct Registry {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<SharedMemoryBackend>> backends;

  static Registry& Instance() {
    static auto* registry = new Registry;
    return *registry;
  }

  // Returns the live backends and removes the others.
  std::vector<c10::intrusive_ptr<SharedMemoryBackend>> Alive() {
    std::vector<c10::intrusive_ptr<SharedMemoryBackend>> alive;
    std::vector<c10::weak_intrusive_ptr<SharedMemoryBackend>> kept;
    for (auto& weak : backends) {
      if (auto strong = weak.lock()) {
        alive.push_back(std::move(strong));
        kept.push_back(std::move(weak));
      }
    }
    backends = std::move(kept);
    return alive;
  }
};

SharedMemoryBackend& AsSharedMemoryBackend(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* ours = dynamic_cast<SharedMemoryBackend*>(backend.get());
  TORCH_CHECK(ours != nullptr, "This is not a backend of fulldeck's.");
  return *ours;
}

// Messages between ranks on several nodes whose tensors are on a card or non-contiguous: Gloo only sends contiguous
// host memory.
class GlooMessageWork final : public c10d::Work {
 public:
  GlooMessageWork(int rank, const WorkTitle& title, const at::Tensor& tensor, c10::intrusive_ptr<c10d::Work> inner,
                  std::shared_ptr<Operands> operands, milliseconds timeout)
      : c10d::Work(rank, title.type, title.profiling_title, std::vector<at::Tensor>{tensor}),
        inner_(std::move(inner)),
        operands_(std::move(operands)),
        timeout_(timeout) {}

  bool wait(milliseconds timeout) override {
    const std::lock_guard lock(mutex_of_wait_);
    if (isCompleted()) return c10d::Work::wait(kNoTimeout);
    std::exception_ptr error;
    try {
      inner_->wait(timeout == kNoTimeout ? timeout_ : timeout);
      const QuietDispatch quiet;
      operands_->Deliver();
    } catch (...) {
      error = std::current_exception();
    }
    finishAndThrow(error);
    return true;
  }
  int sourceRank() const override { return inner_->sourceRank(); }
  void abort() override { inner_->abort(); }
  void synchronize() override {}

 private:
  std::mutex mutex_of_wait_;
  const c10::intrusive_ptr<c10d::Work> inner_;
  const std::shared_ptr<Operands> operands_;
  const milliseconds timeout_;
};

}  // namespace

// ---- creation and shutdown ----

SharedMemoryBackend::SharedMemoryBackend(BackendRequest request)
    : c10d::Backend(request.rank, request.size),
      request_(std::move(request)),
      base_store_(BelowAllPrefixes(request_.store)),
      pid_(getpid()),
      timeout_(ClampTimeout(request_.timeout)) {
  impl_ = RunRendezvous();
  init();
}

SharedMemoryBackend::~SharedMemoryBackend() {
  SharedMemoryBackend::release_resources();
}

void SharedMemoryBackend::release_resources() {
  try {
    Leave("nobody uses it any more", kShutdownGrace);
  } catch (const std::exception& error) {
    base::Log(base::Severity::kError, std::string("leaving a group: ") + error.what());
  }
}

std::int64_t SharedMemoryBackend::GlobalRank(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < request_.global_ranks.size() ? request_.global_ranks[index] : rank;
}

std::shared_ptr<SharedMemoryBackend::Impl> SharedMemoryBackend::RunRendezvous() {
  const milliseconds timeout = timeout_.load();
  const std::string name = request_.group_name.empty() ? "group" : request_.group_name;
  auto core = std::make_shared<Impl>();
  core->failures = std::make_shared<const Failures>(name, request_.global_ranks);

  const std::string& given = request_.node_for_tests;
  const NodeIdentity host = given.empty() ? ThisNode() : NodeIdentity{given, given};
  const NodeExchange exchange = ExchangeNodes(*request_.store, rank_, size_, host, timeout);
  prefix_ = exchange.prefix;
  const NodeTopology& nodes = exchange.nodes;
  const int here = nodes.node_of[static_cast<std::size_t>(rank_)];
  if (nodes.nodes() > 1) {
    std::vector<std::int64_t> ranks_here;
    for (const int rank : nodes.members[static_cast<std::size_t>(here)]) ranks_here.push_back(GlobalRank(rank));
    core->failures = std::make_shared<const Failures>(name, std::move(ranks_here), "on this host");
  }

  collectives::GroupOptions options;
  options.rank = nodes.LocalRank(rank_);
  options.size = static_cast<int>(nodes.members[static_cast<std::size_t>(here)].size());
  options.name = name;
  options.key = KeyOf(exchange.secret);
  options.timeout = timeout;
  options.check_finite = request_.check_finite;
  options.expects_cards = HasCards();
  collectives::Group::CreateResult made = collectives::Group::Create(options);
  if (!made.group) core->failures->ThrowIf(made.status, "meeting", timeout);
  core->group = std::move(made.group);
  core->queue = CallQueue::Create();

  if (nodes.nodes() == 1) {
    core->route = std::make_shared<LocalRoute>(core->group, core->failures);
    core->messages = MessageDriver::Create(core->group, core->failures);
    return core;
  }
  const auto store_of = [&](const std::string& what) {
    return c10::make_intrusive<c10d::PrefixStore>(prefix_ + what, request_.store);
  };
  MultiNodeRoute::Groups groups;
  groups.nodes = nodes;
  groups.rank = rank_;
  groups.local = core->group;
  groups.failures = core->failures;
  groups.flat = MakeGlooGroup(store_of("flat"), rank_, size_, timeout);
  if (nodes.even()) {
    groups.between = MakeGlooGroup(store_of("between/" + std::to_string(options.rank)), here, nodes.nodes(), timeout);
  } else if (rank_ == 0) {
    base::Log(base::Severity::kWarning, "group '" + base::Printable(name) + "' has its " + std::to_string(size_) +
                                            " ranks unevenly on " + std::to_string(nodes.nodes()) +
                                            " hosts; its calls go over Gloo between all ranks.");
  }
  core->multi_node = std::make_shared<MultiNodeRoute>(std::move(groups));
  core->route = core->multi_node;
  return core;
}

std::shared_ptr<SharedMemoryBackend::Impl> SharedMemoryBackend::core() const {
  const std::lock_guard lock(mutex_);
  if (!impl_) C10_THROW_ERROR(DistBackendError, "fulldeck: " + why_left_);
  TORCH_CHECK(pid_ == getpid(), "fulldeck: this process was forked from a member of the group and is none itself.");
  return impl_;
}

void SharedMemoryBackend::Leave(const std::string& reason, milliseconds grace) {
  const std::lock_guard leaving(leaving_);
  std::shared_ptr<Impl> core;
  {
    const std::lock_guard lock(mutex_);
    if (!impl_) return;
    core = std::move(impl_);
    why_left_ = "rank " + std::to_string(rank_) + " has left the group '" +
                base::Printable(request_.group_name.empty() ? "group" : request_.group_name) + "': " + reason + ".";
    coalesced_.reset();
  }
  if (pid_ != getpid()) {
    // After a fork. The threads and the membership belong to the parent; leak the reference instead of ending them
    // here.
    static_cast<void>(new std::shared_ptr<Impl>(std::move(core)));
    return;
  }
  const auto deadline = steady_clock::now() + grace;
  bool ended = core->queue->Drain(deadline);
  if (core->messages) ended = core->messages->Drain(deadline) && ended;
  if (!ended) core->route->Abort(why_left_);
  if (core->messages) core->messages->Stop(why_left_);
  if (core->queue->Stop(why_left_, steady_clock::now() + std::chrono::seconds(1))) return;
  core->route->Abort(why_left_);
  if (!core->queue->Stop(why_left_, steady_clock::now() + kAbortGrace)) {
    base::Log(base::Severity::kWarning, "a call of a group that was left does not end; its thread is left behind.");
  }
}

void SharedMemoryBackend::abort() {
  if (pid_ == getpid()) {
    std::shared_ptr<Impl> core;
    {
      const std::lock_guard lock(mutex_);
      core = impl_;
    }
    if (core) core->route->Abort("rank " + std::to_string(rank_) + " called abort().");
  }
  Leave("abort() was called", milliseconds(0));
}

void SharedMemoryBackend::shutdown() {
  Leave("shutdown() was called", kShutdownGrace);
}

bool SharedMemoryBackend::Matches(const BackendRequest& request) const {
  const std::lock_guard lock(mutex_);
  return impl_ != nullptr && pid_ == getpid() && !request.group_name.empty() &&
         request.group_name == request_.group_name && request.rank == rank_ && request.size == size_ &&
         BelowAllPrefixes(request.store) == base_store_;
}

// ---- properties ----

void SharedMemoryBackend::setTimeout(milliseconds timeout) {
  timeout_.store(ClampTimeout(timeout));
}

c10::intrusive_ptr<c10d::Backend::Options> SharedMemoryBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("fulldeck", timeout_.load());
  minor::SetGroupName(*options, request_.group_name);
  return options;
}

c10::intrusive_ptr<c10d::Backend> SharedMemoryBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                             const std::vector<int>& ranks,
                                                             const c10::intrusive_ptr<Options>& options) {
  const auto self = std::find(ranks.begin(), ranks.end(), rank_);
  if (self == ranks.end()) return nullptr;
  BackendRequest part = request_;
  part.store = store;
  part.rank = static_cast<int>(self - ranks.begin());
  part.size = static_cast<int>(ranks.size());
  part.global_ranks.clear();
  for (const int rank : ranks) part.global_ranks.push_back(GlobalRank(rank));
  if (options) {
    part.timeout = options->timeout;
    part.group_name = minor::GroupNameOf(*options);
  }
  return MakeBackend(std::move(part));
}

minor::ErrorType SharedMemoryBackend::getError() {
  switch (core()->group->CurrentStatus().code()) {
    case FULLDECK_OK:
      return minor::ErrorType::SUCCESS;
    case FULLDECK_ERROR_TIMEOUT:
      return minor::ErrorType::TIMEOUT;
    case FULLDECK_ERROR_PEER_LOST:
    case FULLDECK_ERROR_ABORTED:
      return minor::ErrorType::REMOTE_ERROR;
    default:
      return minor::ErrorType::COMM_ERROR;
  }
}

at::Tensor SharedMemoryBackend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK(size >= 0, "fulldeck: a tensor of ", size, " elements cannot be allocated.");
  if (!options.device().is_cpu() || size == 0) return at::empty({size}, options);
  const auto group = core()->group;
  const std::uint64_t bytes = static_cast<std::uint64_t>(size) * options.dtype().itemsize();
  const collectives::Group::Allocation allocation = group->Allocate(bytes);
  if (allocation.memory == nullptr) {
    TORCH_WARN("fulldeck: ", bytes, " bytes of shared memory cannot be had (", allocation.status.text(),
               "); they come from the heap, and collectives on them are slower.");
    return at::empty({size}, options);
  }
  return at::from_blob(
      allocation.memory, {size}, [group](void* memory) { group->Free(memory); }, options);
}

PathCounts SharedMemoryBackend::paths() const {
  return core()->route->paths();
}
std::string SharedMemoryBackend::Describe() const {
  return core()->route->Describe();
}

NonfiniteRecord SharedMemoryBackend::Nonfinite() const {
  return LastNonfinite(*core());
}
NonfiniteRecord SharedMemoryBackend::LastNonfinite(const Impl& core) {
  const auto found = core.group->LastNonfinite();
  if (!found) return {};
  return {.found = true, .rank = found->rank, .element = found->element, .call = found->call};
}

const char* SharedMemoryBackend::Title(const char* name) const {
  // The profiler keeps the pointer.
  static std::mutex mutex;
  static auto* titles = new std::map<std::pair<std::string, const char*>, std::string>;
  const std::lock_guard lock(mutex);
  std::string& title = (*titles)[{request_.profiling_name, name}];
  if (title.empty()) title = request_.profiling_name + ":" + name;
  return title.c_str();
}

// ---- coalescing ----

void SharedMemoryBackend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!coalesced_, "fulldeck: startCoalescing was called twice.");
  coalesced_.emplace();
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::endCoalescing() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(coalesced_, "fulldeck: endCoalescing was called without startCoalescing.");
  auto work = c10::make_intrusive<CoalescedWork>(rank_, std::move(*coalesced_));
  coalesced_.reset();
  return work;
}

bool SharedMemoryBackend::IsCoalescing() const {
  const std::lock_guard lock(mutex_);
  return coalesced_.has_value();
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::Collect(c10::intrusive_ptr<c10d::Work> work) {
  const std::lock_guard lock(mutex_);
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

// ---- send and receive ----

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::Message(c10d::OpType type, const char* name,
                                                            std::vector<at::Tensor>& tensors, int peer, int tag) {
  TORCH_CHECK(tensors.size() == 1, "fulldeck: ", name, " takes one tensor, not ", tensors.size(), ".");
  TORCH_CHECK(tag >= 0, "fulldeck: the tag of a message must not be negative (", tag, ").");
  const QuietDispatch quiet;
  const at::Tensor& tensor = tensors[0];
  const auto alive = core();
  const bool is_send = type == c10d::OpType::SEND;
  auto operands = std::make_shared<Operands>(name);
  const OperandRange message = Whole(is_send ? operands->Read(tensor) : operands->Write(tensor));
  operands->Seal();
  const WorkTitle title{type, Title(name)};
  if (alive->multi_node) {
    return Collect(MessageOverGloo(*alive, title, std::move(operands), message, tensor, peer, tag));
  }
  auto work = c10::make_intrusive<CollectiveWork>(rank_, title, std::vector<at::Tensor>{tensor},
                                                  std::vector<at::Tensor>{tensor}, sequence_.load());
  const auto unsigned_tag = static_cast<std::uint64_t>(tag);
  if (is_send) {
    alive->messages->Send(work, std::move(operands), message, peer, unsigned_tag, timeout_.load());
  } else {
    alive->messages->Receive(work, std::move(operands), message, peer, unsigned_tag, timeout_.load());
  }
  return Collect(work);
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::MessageOverGloo(Impl& core, const WorkTitle& title,
                                                                    std::shared_ptr<Operands> operands,
                                                                    const OperandRange& message,
                                                                    const at::Tensor& tensor, int peer, int tag) {
  const auto flat = core.multi_node->flat();
  if (!flat) core.failures->Throw("send or receive", "the group has failed before.");
  std::vector<at::Tensor> bytes = {operands->Host(message).view(at::kByte)};
  const WithoutPipeSignal no_signal;
  c10::intrusive_ptr<c10d::Work> inner;
  if (title.type == c10d::OpType::SEND) {
    inner = flat->send(bytes, peer, tag);
  } else if (title.type == c10d::OpType::RECV) {
    inner = flat->recv(bytes, peer, tag);
  } else {
    inner = flat->recvAnysource(bytes, tag);
  }
  core.multi_node->CountFlat();
  return c10::make_intrusive<GlooMessageWork>(rank_, title, tensor, std::move(inner), std::move(operands),
                                              timeout_.load());
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  return Message(c10d::OpType::SEND, "send", tensors, to, tag);
}
c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  return Message(c10d::OpType::RECV, "recv", tensors, from, tag);
}
c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  return Message(c10d::OpType::RECVANYSOURCE, "recvAnySource", tensors, FULLDECK_ANY_SOURCE, tag);
}

// ---- the interface of backend.h ----

c10::intrusive_ptr<c10d::Backend> MakeBackend(BackendRequest request) {
  TORCH_CHECK(request.store, "fulldeck: a group needs a store through which its members meet.");
  TORCH_CHECK(request.size >= 1 && request.rank >= 0 && request.rank < request.size, "fulldeck: rank ", request.rank,
              " of ", request.size, " cannot be.");
  Registry& registry = Registry::Instance();
  {
    const std::lock_guard lock(registry.mutex);
    for (const auto& backend : registry.Alive()) {
      if (backend->Matches(request)) return backend;
    }
  }
  // DDP only requests bucket memory from a backend if this variable is "0". Do not override the user's setting.
  c10::utils::set_env("DDP_DISABLE_COMM_MEM", "0", /*overwrite=*/false);
  if (const std::string lacking = LackingInThisTorch(); !lacking.empty() && request.rank == 0) {
    static std::once_flag logged;
    std::call_once(logged, [&] {
      base::Log(base::Severity::kInfo, "with torch " + std::string(BuiltForTorch()) + ": " + lacking + ".");
    });
  }
  auto backend = c10::make_intrusive<SharedMemoryBackend>(std::move(request));
  const std::lock_guard lock(registry.mutex);
  registry.backends.emplace_back(backend);
  return backend;
}

PathCounts PathsOf(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return AsSharedMemoryBackend(backend).paths();
}
std::string DescriptionOf(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return AsSharedMemoryBackend(backend).Describe();
}
NonfiniteRecord NonfiniteOf(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return AsSharedMemoryBackend(backend).Nonfinite();
}
std::optional<NonfiniteRecord> NonfiniteOfCall(const c10::intrusive_ptr<c10d::Work>& work) {
  const auto* const call = dynamic_cast<const CollectiveWork*>(work.get());
  return call == nullptr ? std::nullopt : call->nonfinite();
}

void ShutdownAllBackends() {
  std::vector<c10::intrusive_ptr<SharedMemoryBackend>> alive;
  {
    Registry& registry = Registry::Instance();
    const std::lock_guard lock(registry.mutex);
    alive = registry.Alive();
  }
  const auto deadline = steady_clock::now() + kExitGrace;
  for (const auto& backend : alive) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    backend->Leave("the process ends", std::max(left, milliseconds(0)));
  }
}

std::string LackingInThisTorch() {
  return minor::Lacking();
}
const char* BuiltForTorch() {
  return TORCH_VERSION;
}

}  // namespace fulldeck::torch_backend
