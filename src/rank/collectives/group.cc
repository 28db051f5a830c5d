#include "collectives/group.h"

#include <limits>
#include <utility>

#include "collectives/calls.h"
#include "collectives/engine.h"

namespace fulldeck::collectives {
namespace {

Status Refuse(const Engine& engine, const char* operation, const std::string& why) {
  return {FULLDECK_ERROR_ARGUMENT, std::string(operation) + " of group \"" + engine.name() + "\": " + why};
}

bool Overlap(const Buffer& a, std::uint64_t a_bytes, const Buffer& b, std::uint64_t b_bytes) {
  if (a.host == nullptr || b.host == nullptr || a_bytes == 0 || b_bytes == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.host);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.host);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

bool Missing(const Buffer& buffer, std::uint64_t bytes) {
  return bytes > 0 && buffer.host == nullptr && buffer.staging == nullptr;
}

std::uint64_t PlaceOf(const Engine& engine, const Buffer& input, const Buffer& output, std::uint64_t bytes) {
  if (input.staging != nullptr || output.staging != nullptr) return kOnCard;
  if (input.host != output.host || bytes == 0 || !engine.Owns(input.host, bytes)) return kNotShared;
  return static_cast<std::uint64_t>(input.host - engine.Segment(engine.rank()));
}

std::uint64_t PlaceOf(std::span<const Buffer> some, const Buffer& other) {
  bool card = other.staging != nullptr;
  for (const Buffer& buffer : some) card = card || buffer.staging != nullptr;
  return card ? kOnCard : kNotShared;
}

// Runs a call between Begin and End: one call at a time.
template <class Body>
Status MakeCall(Engine& engine, const Call& call, std::uint64_t bytes, std::uint64_t place, Body body) {
  if (Status status = engine.CheckProcess(); !status.ok()) return status;
  const std::lock_guard lock(engine.call_mutex());
  if (Status status = engine.Begin(call, bytes, place); !status.ok()) return status;
  Status status = body();
  engine.End(status);
  return status;
}

}  // namespace

struct Group::Impl {
  std::unique_ptr<Engine> engine;

  // Checks common to all calls. `parts`: how many times `count` elements the larger buffer holds.
  Status CheckCall(const Call& call, int parts) const {
    const char* operation = NameOf(call.operation);
    if (!IsDatatype(static_cast<int>(call.datatype))) {
      return Refuse(*engine, operation, "datatype " + std::to_string(static_cast<int>(call.datatype)) + " is unknown");
    }
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / 2 / BytesOf(call.datatype);
    if (call.count > most / static_cast<std::uint64_t>(parts)) {
      return Refuse(*engine, operation, std::to_string(call.count) + " elements are more than memory can hold");
    }
    if (call.reduction != Reduction::kNone && !CanReduce(call.datatype, call.reduction)) {
      return Refuse(
          *engine, operation,
          std::string(IsReduction(static_cast<int>(call.reduction)) ? NameOf(call.reduction) : "an unknown reduction") +
              " is not possible with " + NameOf(call.datatype));
    }
    return {};
  }
  Status CheckRoot(const Call& call) const {
    if (call.root >= 0 && call.root < engine->size()) return {};
    return Refuse(
        *engine, NameOf(call.operation),
        "root " + std::to_string(call.root) + " is not one of its " + std::to_string(engine->size()) + " ranks");
  }
  // Input and output of the same length: the same buffer, or two that do not overlap.
  Status CheckPair(const Call& call, const Buffer& input, const Buffer& output, std::uint64_t bytes,
                   bool has_output) const {
    const char* operation = NameOf(call.operation);
    if (Missing(input, bytes)) return Refuse(*engine, operation, "the input is NULL");
    if (!has_output) return {};
    if (Missing(output, bytes)) return Refuse(*engine, operation, "the output is NULL");
    if (input.host != output.host && Overlap(input, bytes, output, bytes)) {
      return Refuse(*engine, operation, "input and output overlap; give the same buffer for both, or two apart");
    }
    return {};
  }
  // A list with one buffer per rank, and another buffer. They must not overlap, except that the buffer of this rank may
  // be the same.
  Status CheckList(const Call& call, std::span<const Buffer> list, const Buffer& other, std::uint64_t bytes) const {
    const char* operation = NameOf(call.operation);
    if (list.size() != static_cast<std::size_t>(engine->size())) {
      return Refuse(*engine, operation,
                    std::to_string(list.size()) + " buffers for " + std::to_string(engine->size()) + " ranks");
    }
    for (std::size_t rank = 0; rank < list.size(); ++rank) {
      if (Missing(list[rank], bytes)) return Refuse(*engine, operation, "buffer " + std::to_string(rank) + " is NULL");
      const bool same_place = rank == static_cast<std::size_t>(engine->rank()) && list[rank].host == other.host;
      if (!same_place && Overlap(list[rank], bytes, other, bytes)) {
        return Refuse(*engine, operation, "input and output overlap");
      }
    }
    return {};
  }
};

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::~Group() = default;

Group::CreateResult Group::Create(const GroupOptions& options) {
  auto impl = std::make_unique<Impl>();
  Status status = Engine::Create(options, impl->engine);
  if (!status.ok()) return {nullptr, std::move(status)};
  return {std::unique_ptr<Group>(new Group(std::move(impl))), {}};
}

int Group::rank() const {
  return impl_->engine->rank();
}
int Group::size() const {
  return impl_->engine->size();
}
const std::string& Group::name() const {
  return impl_->engine->name();
}
std::uint64_t Group::calls() const {
  return impl_->engine->sequence();
}

Status Group::AllReduce(Buffer input, Buffer output, std::uint64_t count, Datatype datatype, Reduction reduction) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kAllReduce, datatype, reduction, -1, count};
  if (Status status = impl_->CheckCall(call, 1); !status.ok()) return status;
  const std::uint64_t bytes = count * BytesOf(datatype);
  if (Status status = impl_->CheckPair(call, input, output, bytes, true); !status.ok()) return status;
  return MakeCall(engine, call, bytes, PlaceOf(engine, input, output, bytes), [&] {
    Status status = RunAllReduce(engine, call, input, output);
    // A direct reduction was done redundantly by all, the others in shares: the combined result is the same on every
    // rank.
    if (status.ok()) engine.ResolveNonfinite(bytes > engine.direct_bytes());
    return status;
  });
}

Status Group::Reduce(Buffer input, Buffer output, std::uint64_t count, Datatype datatype, Reduction reduction,
                     int root) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kReduce, datatype, reduction, root, count};
  if (Status status = impl_->CheckCall(call, 1); !status.ok()) return status;
  if (Status status = impl_->CheckRoot(call); !status.ok()) return status;
  const std::uint64_t bytes = count * BytesOf(datatype);
  if (Status status = impl_->CheckPair(call, input, output, bytes, rank() == root); !status.ok()) return status;
  const Buffer result = rank() == root ? output : Buffer{};
  return MakeCall(engine, call, bytes, PlaceOf({}, input.staging != nullptr ? input : result), [&] {
    Status status = RunReduce(engine, call, input, result);
    if (status.ok()) engine.ResolveNonfinite(bytes > engine.direct_bytes());
    return status;
  });
}

Status Group::Broadcast(Buffer buffer, std::uint64_t count, Datatype datatype, int root) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kBroadcast, datatype, Reduction::kNone, root, count};
  if (Status status = impl_->CheckCall(call, 1); !status.ok()) return status;
  if (Status status = impl_->CheckRoot(call); !status.ok()) return status;
  const std::uint64_t bytes = count * BytesOf(datatype);
  if (Missing(buffer, bytes)) return Refuse(engine, "broadcast", "the buffer is NULL");
  return MakeCall(engine, call, bytes, PlaceOf({}, buffer), [&] { return RunBroadcast(engine, call, buffer); });
}

Status Group::AllGather(Buffer input, std::span<const Buffer> outputs, std::uint64_t count, Datatype datatype) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kAllGather, datatype, Reduction::kNone, -1, count};
  if (Status status = impl_->CheckCall(call, size()); !status.ok()) return status;
  const std::uint64_t bytes = count * BytesOf(datatype);
  if (Missing(input, bytes)) return Refuse(engine, "all_gather", "the input is NULL");
  if (Status status = impl_->CheckList(call, outputs, input, bytes); !status.ok()) return status;
  return MakeCall(engine, call, bytes, PlaceOf(outputs, input),
                  [&] { return RunAllGather(engine, call, input, outputs); });
}

Status Group::ReduceScatter(std::span<const Buffer> inputs, Buffer output, std::uint64_t count, Datatype datatype,
                            Reduction reduction) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kReduceScatter, datatype, reduction, -1, count};
  if (Status status = impl_->CheckCall(call, size()); !status.ok()) return status;
  const std::uint64_t bytes = count * BytesOf(datatype);
  if (Missing(output, bytes)) return Refuse(engine, "reduce_scatter", "the output is NULL");
  if (Status status = impl_->CheckList(call, inputs, output, bytes); !status.ok()) return status;
  return MakeCall(engine, call, bytes * inputs.size(), PlaceOf(inputs, output), [&] {
    Status status = RunReduceScatter(engine, call, inputs, output);
    if (status.ok()) engine.ResolveNonfinite(false);
    return status;
  });
}

Status Group::Gather(Buffer input, std::span<const Buffer> outputs, std::uint64_t count, Datatype datatype, int root) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kGather, datatype, Reduction::kNone, root, count};
  if (Status status = impl_->CheckCall(call, size()); !status.ok()) return status;
  if (Status status = impl_->CheckRoot(call); !status.ok()) return status;
  const std::uint64_t bytes = count * BytesOf(datatype);
  if (Missing(input, bytes)) return Refuse(engine, "gather", "the input is NULL");
  const std::span<const Buffer> takes = rank() == root ? outputs : std::span<const Buffer>();
  if (rank() == root) {
    if (Status status = impl_->CheckList(call, outputs, input, bytes); !status.ok()) return status;
  }
  return MakeCall(engine, call, bytes, PlaceOf(takes, input), [&] { return RunGather(engine, call, input, takes); });
}

Status Group::Scatter(std::span<const Buffer> inputs, Buffer output, std::uint64_t count, Datatype datatype, int root) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kScatter, datatype, Reduction::kNone, root, count};
  if (Status status = impl_->CheckCall(call, size()); !status.ok()) return status;
  if (Status status = impl_->CheckRoot(call); !status.ok()) return status;
  const std::uint64_t bytes = count * BytesOf(datatype);
  if (Missing(output, bytes)) return Refuse(engine, "scatter", "the output is NULL");
  const std::span<const Buffer> gives = rank() == root ? inputs : std::span<const Buffer>();
  if (rank() == root) {
    if (Status status = impl_->CheckList(call, inputs, output, bytes); !status.ok()) return status;
  }
  return MakeCall(engine, call, bytes, PlaceOf(gives, output), [&] { return RunScatter(engine, call, gives, output); });
}

Status Group::AllToAll(std::span<const RankBuffer> inputs, std::span<const RankBuffer> outputs, Datatype datatype) {
  Engine& engine = *impl_->engine;
  const Call call{Operation::kAllToAll, datatype, Reduction::kNone, -1, 0};
  if (Status status = impl_->CheckCall(call, 1); !status.ok()) return status;
  const auto ranks = static_cast<std::size_t>(size());
  if (inputs.size() != ranks || outputs.size() != ranks) {
    return Refuse(engine, "all_to_all",
                  std::to_string(inputs.size()) + " inputs and " + std::to_string(outputs.size()) + " outputs for " +
                      std::to_string(ranks) + " ranks");
  }
  const std::uint64_t element = BytesOf(datatype);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / 2 / element / ranks;
  std::uint64_t bytes = 0;
  bool card = false;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (inputs[rank].count > most || outputs[rank].count > most) {
      return Refuse(engine, "all_to_all", "part " + std::to_string(rank) + " is longer than memory can hold");
    }
    bytes += inputs[rank].count * element;
    card = card || inputs[rank].buffer.staging != nullptr || outputs[rank].buffer.staging != nullptr;
    if (Missing(inputs[rank].buffer, inputs[rank].count) || Missing(outputs[rank].buffer, outputs[rank].count)) {
      return Refuse(engine, "all_to_all", "the buffer of part " + std::to_string(rank) + " is NULL");
    }
    for (std::size_t other = 0; other < ranks; ++other) {
      if (Overlap(inputs[rank].buffer, inputs[rank].count * element, outputs[other].buffer,
                  outputs[other].count * element)) {
        return Refuse(engine, "all_to_all", "input and output overlap");
      }
    }
  }
  return MakeCall(engine, call, bytes, card ? kOnCard : kNotShared,
                  [&] { return RunAllToAll(engine, call, inputs, outputs); });
}

Status Group::Barrier() {
  Engine& engine = *impl_->engine;
  return MakeCall(engine, Call{}, 0, kNotShared, [&] { return RunBarrier(engine); });
}

Messages& Group::messages() {
  return impl_->engine->messages();
}

Status Group::Send(const void* data, std::uint64_t bytes, int to, std::uint64_t tag) {
  Engine& engine = *impl_->engine;
  if (Status status = engine.CheckProcess(); !status.ok()) return status;
  if (Status status = engine.Failed(); !status.ok()) return status;
  if (data == nullptr && bytes > 0) return Refuse(engine, "send", "the data is NULL");
  const auto operation = messages().PostSend(data, bytes, to, tag);
  return messages().Wait(*operation, base::SteadyClock::Instance().Now() + timeout());
}

Status Group::Receive(void* data, std::uint64_t bytes, int from, std::uint64_t tag, int* came_from) {
  Engine& engine = *impl_->engine;
  if (Status status = engine.CheckProcess(); !status.ok()) return status;
  if (Status status = engine.Failed(); !status.ok()) return status;
  if (data == nullptr && bytes > 0) return Refuse(engine, "receive", "the data is NULL");
  const auto operation = messages().PostReceive(data, bytes, from, tag);
  Status status = messages().Wait(*operation, base::SteadyClock::Instance().Now() + timeout());
  if (status.ok() && came_from != nullptr) *came_from = operation->peer();
  return status;
}

Group::Allocation Group::Allocate(std::uint64_t bytes) {
  if (Status status = impl_->engine->CheckProcess(); !status.ok()) return {nullptr, std::move(status)};
  return impl_->engine->Allocate(bytes);
}
void Group::Free(void* memory) {
  if (impl_->engine->CheckProcess().ok()) impl_->engine->Free(memory);
}
bool Group::Owns(const void* memory, std::uint64_t bytes) const {
  return impl_->engine->Owns(memory, bytes);
}

void Group::Abort(const std::string& reason) {
  if (!impl_->engine->CheckProcess().ok()) return;
  (void)impl_->engine->Fail(FULLDECK_ERROR_ABORTED,
                            "group \"" + name() + "\" was aborted by rank " + std::to_string(rank()) + ": " + reason);
}
Status Group::CurrentStatus() {
  if (Status status = impl_->engine->CheckProcess(); !status.ok()) return status;
  return impl_->engine->CheckHealth();
}
void Group::SetTimeout(base::Duration timeout) {
  impl_->engine->SetTimeout(timeout);
}
base::Duration Group::timeout() const {
  return impl_->engine->timeout();
}
std::optional<Nonfinite> Group::LastNonfinite() const {
  return impl_->engine->LastNonfinite();
}

std::vector<std::span<std::byte>> Group::StagingMemory() const {
  const Engine& engine = *impl_->engine;
  std::vector<std::span<std::byte>> ranges;
  for (int rank = 0; rank < engine.size(); ++rank) {
    ranges.emplace_back(engine.Segment(rank) + engine.layout().slots, engine.layout().partials);
  }
  return ranges;
}

void Group::SetTrace(std::function<void(std::span<const TraceEvent>)> sink) {
  const std::lock_guard lock(impl_->engine->call_mutex());
  impl_->engine->SetTrace(std::move(sink));
}
std::string Group::Describe() const {
  return impl_->engine->Describe();
}

}  // namespace fulldeck::collectives
