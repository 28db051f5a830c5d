#include "collectives/engine.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/text.h"
#include "base/usable_cpus.h"
#include "collectives/memory/chunks.h"
#include "collectives/memory/copying.h"
#include "wire/sha256.h"
#include "wire/variables.h"

namespace fulldeck::collectives {
namespace {

constexpr std::uint64_t kMaxChunkBytes = std::uint64_t{64} << 20;
// "No limit", as a duration that can still be added to a time without overflow.
constexpr base::Duration kMaxTimeout = std::chrono::hours(24 * 365 * 100);

// Incremented in a forked child: a group belongs to the process that created it.
std::atomic<std::uint32_t> fork_generation{0};

void WatchForks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); }); });
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Without a key in the options, the key comes from the launcher's variables, which distinguish runs. Other users know
// the run id, address and port, but not the launcher's secret; with the secret in the key, they cannot take the
// addresses of the ranks' rendezvous.
std::string KeyFromEnvironment() {
  const std::string run = Variable(wire::kRunIdVariable);
  const std::string port = Variable("MASTER_PORT");
  if (run.empty() && port.empty()) return "";
  return run + '\n' + Variable("MASTER_ADDR") + '\n' + port + '\n' + Variable(wire::kCollectivesKeyVariable);
}

bool AddressSpaceIsLimited() {
  struct rlimit limit = {};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Twice the member's share of the machine's memory, as address space; zero if address space is limited. Every member
// maps the segments of all: with the whole memory size for each, a few groups would use up the address space of a
// process.
std::uint64_t ArenaBytes(int size) {
  if (AddressSpaceIsLimited()) return 0;
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return 0;
  const std::uint64_t memory = static_cast<std::uint64_t>(info.totalram) * info.mem_unit;
  return RoundUp(std::min(memory, memory * 2 / static_cast<std::uint64_t>(size)), kHugePage);
}

std::uint64_t GroupNumber(const std::string& name, const std::string& key) {
  const wire::Sha256Digest digest = wire::HmacSha256(key, name);
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number == 0 ? 1 : number;
}

// Small chunks stay in the caches on their way through a slot; large ones need fewer barriers. Measured:
// docs/collectives.md.
std::uint64_t DefaultChunkBytes(int size, bool expects_cards) {
  if (expects_cards) return std::uint64_t{4} << 20;
  return size > 2 ? std::uint64_t{1} << 20 : std::uint64_t{1} << 18;
}

std::uint64_t DefaultDirectBytes(int size) {
  return std::uint64_t{128 * 1024} / static_cast<std::uint64_t>(size);
}

// Shows the rendezvous as a collective on the board, so that a missing rank is named there. Only in a group of all
// ranks is it known which rank a missing member is.
RendezvousOutcome RendezvousOnBoard(RendezvousRequest request) {
  std::optional<BoardSlot> slot;
  if (base::ParseInteger<int>(Variable("WORLD_SIZE")) == request.size) {
    slot.emplace(GroupNumber(request.name + "/meeting", request.key), request.name, request.size, request.rank);
    slot->BeginRendezvous();
  }
  return RunRendezvous(std::move(request));
}

Status BadVariable(const char* name, const std::string& value, const char* wanted) {
  return {FULLDECK_ERROR_ARGUMENT, std::string(name) + " is \"" + base::Printable(value) + "\"; expected " + wanted};
}

Status NodesFromVariable(int size, std::vector<int>& nodes) {
  const std::string value = Variable(wire::kCollectivesNodesVariable);
  if (value.empty()) return {};
  for (const std::string_view part : base::Split(value, ',')) {
    const std::optional<int> node = base::ParseInteger<int>(base::Trim(part));
    if (!node || *node < 0) {
      return BadVariable(wire::kCollectivesNodesVariable, value, "the NUMA node of each rank, as in 0,0,1,1");
    }
    nodes.push_back(*node);
  }
  // Groups of other sizes (subsets of the world) determine the nodes themselves.
  if (nodes.size() != static_cast<std::size_t>(size)) nodes.clear();
  return {};
}

}  // namespace

Status Engine::Create(const GroupOptions& options, std::unique_ptr<Engine>& out) {
  WatchForks();
  if (options.size < 1 || options.size > kMaxGroupSize) {
    return {FULLDECK_ERROR_ARGUMENT,
            "a group has 1 to " + std::to_string(kMaxGroupSize) + " members, not " + std::to_string(options.size)};
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return {FULLDECK_ERROR_ARGUMENT, "rank " + std::to_string(options.rank) + " is not in a group of " +
                                         std::to_string(options.size) + " (0 … " + std::to_string(options.size - 1) +
                                         ")"};
  }
  if (options.timeout <= base::Duration::zero()) return {FULLDECK_ERROR_ARGUMENT, "a time-out must be longer than 0"};
  std::unique_ptr<Engine> engine(new Engine);
  if (Status status = engine->Prepare(options); !status.ok()) return status;
  out = std::move(engine);
  return {};
}

Status Engine::Prepare(const GroupOptions& options) {
  rank_ = options.rank;
  size_ = options.size;
  name_ = options.name.empty() ? "group" : base::Printable(options.name);
  fork_generation_ = fork_generation.load();
  SetTimeout(options.timeout);
  const std::string key = options.key.empty() ? KeyFromEnvironment() : options.key;
  if (key.empty()) {
    return {FULLDECK_ERROR_ARGUMENT,
            "group \"" + name_ +
                "\" has no key: give one that all members share and nobody else, or start the ranks "
                "with fulldeck run, which sets FULLDECK_RUN_ID and MASTER_PORT"};
  }
  const base::Result<InstructionSet> set = ChooseInstructionSet(Variable(wire::kCollectivesKernelVariable));
  if (!set)
    return {FULLDECK_ERROR_ARGUMENT, std::string(wire::kCollectivesKernelVariable) + ": " + set.error().message};
  instruction_set_ = *set;

  if (const std::string folder = Variable(wire::kCollectivesTraceVariable); !folder.empty()) {
    base::Result<std::unique_ptr<TraceFile>> file = TraceFile::Create(folder, name_, rank_);
    if (!file) {
      return {FULLDECK_ERROR_ARGUMENT, std::string(wire::kCollectivesTraceVariable) +
                                           " must name a folder that can be written to: " + file.error().message};
    }
    trace_file_ = *std::move(file);
  }
  cache_bytes_ = LastLevelCacheBytes();
  std::uint64_t chunk_bytes = options.chunk_bytes;
  if (const std::string value = Variable(wire::kCollectivesChunkVariable); chunk_bytes == 0 && !value.empty()) {
    const std::optional<std::uint64_t> parsed = base::ParseByteSize(value);
    if (!parsed || *parsed < kPage || *parsed > kMaxChunkBytes) {
      return BadVariable(wire::kCollectivesChunkVariable, value, "a size between 4KiB and 64MiB");
    }
    chunk_bytes = *parsed;
  }
  if (chunk_bytes == 0) chunk_bytes = DefaultChunkBytes(size_, options.expects_cards);
  // Room for one line per rank, and for the table of counts of an all_to_all.
  chunk_bytes = std::max(chunk_bytes, std::uint64_t(size_) * 2 * kRangeAlignment);
  std::vector<int> nodes = options.nodes;
  if (nodes.empty()) {
    if (Status status = NodesFromVariable(size_, nodes); !status.ok()) return status;
  } else if (nodes.size() != static_cast<std::size_t>(size_)) {
    return {FULLDECK_ERROR_ARGUMENT,
            std::to_string(nodes.size()) + " NUMA nodes were given for " + std::to_string(size_) + " ranks"};
  }

  RendezvousRequest request;
  request.name = name_;
  request.key = key;
  request.rank = rank_;
  request.size = size_;
  request.control_bytes = RoundUp(sizeof(ControlBlock), kPage);
  request.deadline = base::SteadyClock::Instance().Now() + timeout();
  request.version = options.version;
  request.use_pidfd = options.use_pidfd;
  request.info.node = NodeOfThisThread();
  // A member without memory joins the rendezvous anyway, so that the others do not wait for it.
  const auto cannot_join = [&](const base::Error& error) -> Status {
    request.cannot_join = RendezvousFailure{FULLDECK_ERROR_SYSTEM, NoMemoryText(error)};
    RendezvousOutcome outcome = RunRendezvous(std::move(request));
    return {outcome.failure.code, outcome.failure.text};
  };
  if (rank_ == 0) {
    base::Result<std::shared_ptr<SharedMemory>> memory =
        SharedMemory::Create("fulldeck-control", request.control_bytes);
    if (!memory) return cannot_join(memory.error());
    if (base::Result<void> reserved = (*memory)->Reserve(0, request.control_bytes); !reserved) {
      return cannot_join(reserved.error());
    }
    auto* control = new ((*memory)->data()) ControlBlock();
    control->size = static_cast<std::uint32_t>(size_);
    control->chunk_bytes = RoundUp(chunk_bytes, kPage);
    control->direct_bytes = options.direct_bytes == 0 ? DefaultDirectBytes(size_) : options.direct_bytes;
    // A result on its way to a card goes through the member's result area, which has room for one share.
    control->direct_bytes = std::min(control->direct_bytes, control->chunk_bytes / static_cast<std::uint64_t>(size_));
    control->check_finite = options.check_finite ? 1 : 0;
    control->first_barrier = options.first_barrier;
    control->barrier.arrivals = options.first_barrier * static_cast<std::uint32_t>(size_);
    control->barrier.released = options.first_barrier;
    for (MemberState& line : control->ranks) line.arrived = options.first_barrier;
    for (int rank = 0; rank < kMaxGroupSize; ++rank) {
      control->nodes[rank] = nodes.empty() || rank >= size_ ? -1 : nodes[static_cast<std::size_t>(rank)];
    }
    request.control = *memory;
  }
  // The maximum of any layout, because rank 0 makes the final choice; it is only address space.
  const std::uint64_t most = LayoutOf(size_, SlotsForCards(kMaxLevels),
                                      AddressSpaceIsLimited() ? RoundUp(chunk_bytes, kPage) : kMaxChunkBytes, 1)
                                 .arena;
  base::Result<std::shared_ptr<SharedMemory>> segment =
      SharedMemory::Create("fulldeck-segment", most + ArenaBytes(size_));
  if (!segment) return cannot_join(segment.error());
  request.segment = *segment;
  request.info.segment_bytes = (*segment)->size();

  RendezvousOutcome outcome = RendezvousOnBoard(std::move(request));
  if (outcome.rendezvous == nullptr) return {outcome.failure.code, outcome.failure.text};
  rendezvous_ = std::move(outcome.rendezvous);
  control_ = std::launder(reinterpret_cast<ControlBlock*>(rendezvous_->control->data()));
  barrier_ = control_->first_barrier;
  for (const auto& memory : rendezvous_->segments) segments_.push_back(memory->data());

  std::vector<int> by_rank;
  for (int rank = 0; rank < size_; ++rank) {
    const int given = control_->nodes[rank];
    by_rank.push_back(given >= 0 ? given : rendezvous_->infos[static_cast<std::size_t>(rank)].node);
  }
  levels_ = LevelsOf(by_rank);
  layout_ = LayoutOf(size_, SlotsForCards(levels_.levels()), control_->chunk_bytes, levels_.Smallest());
  for (int rank = 0; rank < size_; ++rank) {
    if (rendezvous_->segments[static_cast<std::size_t>(rank)]->size() >= layout_.arena) continue;
    return Fail(FULLDECK_ERROR_SYSTEM, "rank " + std::to_string(rank) + " has no address space for pieces of " +
                                           base::FormatByteSize(layout_.chunk_bytes) +
                                           ": raise its limit (ulimit -v), or give all ranks the same " +
                                           wire::kCollectivesChunkVariable);
  }
  arena_.emplace(layout_.arena, rendezvous_->segments[static_cast<std::size_t>(rank_)]->size());
  reserved_ = layout_.arena;
  board_ = std::make_unique<BoardSlot>(GroupNumber(name_, key), name_, size_, rank_);
  const int run_rank = base::ParseInteger<int>(Variable("RANK")).value_or(-1);
  Line(rank_).run_rank.store(run_rank >= 0 ? static_cast<std::uint32_t>(run_rank) + 1 : 0, std::memory_order_relaxed);

  Messages::Wiring wiring;
  wiring.rank = rank_;
  wiring.size = size_;
  wiring.group_name = name_;
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      wiring.rings.push_back(Segment(from) + layout_.rings + static_cast<std::uint64_t>(to) * kMessageRingBytes);
    }
  }
  for (int rank = 0; rank < size_; ++rank) wiring.doorbells.push_back(&Line(rank).doorbell);
  message_board_ = std::make_unique<MessageBoard>(GroupNumber(name_ + "/p2p", key), name_ + "/p2p", size_, rank_);
  wiring.begun = [this](bool is_send, int peer, std::uint64_t bytes) {
    return message_board_->Begin(is_send, peer, bytes);
  };
  wiring.ended = [this](std::uint64_t number) { message_board_->End(number); };
  wiring.health = [this](int peer) {
    const Status status = PeerHealth(peer);
    if (!status.ok()) ReportToBoard(status);
    return status;
  };
  wiring.poison = [this](const Status& status) { ReportToBoard(Fail(status.code(), status.text(), status.culprit())); };
  // Each member allocates the pages of its own memory, so that they are on its NUMA node; then all members map all
  // segments.
  deadline_ = base::SteadyClock::Instance().Now() + timeout();
  const int slots = SlotsForMemory(levels_.levels());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges = {{layout_.slots, slots * layout_.chunk_bytes},
                                                                 {layout_.results, slots * layout_.result_bytes}};
  if (levels_.levels() > 1) {
    ranges.emplace_back(layout_.partials, slots * 2 * layout_.result_bytes);
    ranges.emplace_back(layout_.fetched, slots * layout_.result_bytes);
  }
  const auto reserve = [&](int rank) -> base::Result<void> {
    for (const auto& [offset, bytes] : ranges) {
      base::Result<void> reserved = rendezvous_->segments[static_cast<std::size_t>(rank)]->Reserve(offset, bytes);
      if (!reserved) return reserved;
    }
    return {};
  };
  if (base::Result<void> reserved = reserve(rank_); !reserved) {
    return Fail(FULLDECK_ERROR_SYSTEM, NoMemoryText(reserved.error()));
  }
  const std::vector<std::uint64_t> own_cpus = base::AllowedCpus();
  for (std::size_t word = 0; word < std::min<std::size_t>(own_cpus.size(), kCpuMaskWords); ++word) {
    control_->cpus[word].fetch_or(own_cpus[word], std::memory_order_relaxed);
  }
  if (Status status = Barrier(); !status.ok()) return status;
  // Ranks that are each bound to their own CPUs have the union of them.
  int allowed = 0;
  for (const auto& word : control_->cpus) allowed += std::popcount(word.load(std::memory_order_relaxed));
  const int cpus = options.cpus > 0 ? options.cpus : base::UsableCpus(allowed);
  wait_policy_ = WaitPolicyFor(size_, cpus);
  helper_ = std::make_unique<HelperThread>(size_ > 1 && cpus >= 2 * size_);
  wiring.wait_policy = wait_policy_;
  messages_ = std::make_unique<Messages>(std::move(wiring));
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    if (base::Result<void> mapped = reserve(rank); !mapped) {
      return Fail(FULLDECK_ERROR_SYSTEM, "rank " + std::to_string(rank_) + " cannot map the memory of rank " +
                                             std::to_string(rank) + ": " + mapped.error().message);
    }
  }
  return Barrier();
}

std::string Engine::NoMemoryText(const base::Error& error) const {
  return "rank " + std::to_string(rank_) + " cannot have shared memory for group \"" + name_ + "\": " + error.message;
}

Engine::~Engine() {
  if (!CheckProcess().ok()) {
    // In a forked child: its copy of the helper has no thread to join, and a thread that does not exist here may hold
    // the lock.
    (void)helper_.release();    // NOLINT(bugprone-unused-return-value)
    (void)messages_.release();  // NOLINT(bugprone-unused-return-value)
    return;
  }
  if (control_ == nullptr) return;
  Line(rank_).left.store(1, std::memory_order_release);  // pairs with the load in Gone
  WakeSleepers(control_->barrier.released);
}

std::string Engine::Describe() const {
  std::string text = std::to_string(size_) + (size_ == 1 ? " rank" : " ranks");
  text += std::string(", kernel ") + NameOf(instruction_set_);
  text += ", pieces of " + base::FormatByteSize(layout_.chunk_bytes);
  text += levels_.levels() == 1 ? ", one level" : ", " + std::to_string(levels_.levels()) + " NUMA nodes";
  text += wait_policy_.pauses > 0 ? ", spinning" : ", yielding";
  return text;
}

void Engine::SetTimeout(base::Duration timeout) {
  timeout_.store(std::min(timeout, kMaxTimeout), std::memory_order_relaxed);
}

Status Engine::CheckProcess() const {
  if (fork_generation_ == fork_generation.load(std::memory_order_relaxed)) return {};
  return {FULLDECK_ERROR_ARGUMENT,
          "group \"" + name_ + "\" was made before a fork; a child process makes its own groups"};
}

Status Engine::Begin(const Call& call, std::uint64_t bytes, std::uint64_t place) {
  if (Status status = Failed(); !status.ok()) {
    ReportToBoard(status);
    return status;
  }
  call_ = call;
  const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed) + 1;
  sequence_.store(sequence, std::memory_order_relaxed);
  const base::Duration timeout = timeout_.load(std::memory_order_relaxed);
  deadline_ = base::SteadyClock::Instance().Now() + timeout;
  MemberState& line = Line(rank_);
  MemberState::Record& record = line.records[sequence & 1];
  record.call.store(Pack(call), std::memory_order_relaxed);
  record.count.store(call.count, std::memory_order_relaxed);
  record.place.store(place, std::memory_order_relaxed);
  record.nonfinite_element.store(kNothing, std::memory_order_relaxed);
  record.nonfinite_rank.store(kNothing, std::memory_order_relaxed);
  line.sequence.store(sequence, std::memory_order_relaxed);
  line.in_call.store(1, std::memory_order_relaxed);
  board_->Begin(call, sequence, bytes);
  trace_events_.clear();
  if (traced()) began_ns_ = static_cast<std::uint64_t>(base::SteadyClock::Instance().Now().time_since_epoch().count());
  return {};
}

void Engine::End(const Status& status) {
  Line(rank_).in_call.store(0, std::memory_order_relaxed);
  board_->End(sequence_.load(std::memory_order_relaxed));
  if (!status.ok()) ReportToBoard(status);
  if (trace_ != nullptr) trace_(trace_events_);
  if (trace_file_ == nullptr) return;
  const auto now = static_cast<std::uint64_t>(base::SteadyClock::Instance().Now().time_since_epoch().count());
  trace_file_->Write(sequence(), call_, began_ns_, now, trace_events_);
}

const MemberState::Record& Engine::RecordOf(int rank) const {
  return Line(rank).records[sequence() & 1];
}

// Each member allocates its own pages, so that they are on its NUMA node.
Status Engine::ReserveForCards() {
  if (reserved_for_cards_.load(std::memory_order_acquire)) return {};
  const base::Result<void> reserved = rendezvous_->segments[static_cast<std::size_t>(rank_)]->Reserve(0, layout_.rings);
  if (!reserved) return Fail(FULLDECK_ERROR_SYSTEM, NoMemoryText(reserved.error()));
  reserved_for_cards_.store(true, std::memory_order_release);
  return {};
}

Status Engine::Barrier() {
  ++barrier_;
  if (size_ == 1) return Failed();
  collectives::Barrier& barrier = control_->barrier;
  const std::uint32_t before = barrier.arrivals.fetch_add(1, std::memory_order_acq_rel);
  const bool last = before + 1 == barrier_ * static_cast<std::uint32_t>(size_);
  if (last) Publish(barrier.released, barrier_, barrier.sleepers);
  // After both stores above: a member that is killed between them is reported as lost, instead of being waited for
  // indefinitely.
  Line(rank_).arrived.store(barrier_, std::memory_order_release);  // pairs with MissingAt
  if (last) return {};
  const std::uint64_t begin =
      traced() ? static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) : 0;
  Status health;
  const WaitOutcome outcome = WaitUntil(
      barrier.released, barrier.sleepers,
      [&] {
        // Pairs with Publish by the last member to arrive. The signed difference is also correct after the counter has
        // wrapped around.
        return static_cast<std::int32_t>(barrier.released.load(std::memory_order_acquire) - barrier_) >= 0;
      },
      wait_policy_, deadline_,
      [&] {
        health = Health(barrier_);
        return health.ok();
      });
  if (traced()) Trace(TraceEvent::Kind::kWait, barrier_, begin);
  switch (outcome) {
    case WaitOutcome::kDone:
      return {};
    case WaitOutcome::kInterrupted:
      return health;
    case WaitOutcome::kTimedOut:
      break;
  }
  const std::vector<int> missing = MissingAt(barrier_);
  return Fail(FULLDECK_ERROR_TIMEOUT, TimeoutText(barrier_), missing.empty() ? -1 : missing.front());
}

Status Engine::CompareCalls() {
  const MemberState::Record& own = RecordOf(rank_);
  const std::uint64_t call = own.call.load(std::memory_order_relaxed);
  const std::uint64_t count = own.count.load(std::memory_order_relaxed);
  bool same = true;
  for (int rank = 0; rank < size_; ++rank) {
    const MemberState::Record& record = RecordOf(rank);
    same = same && record.call.load(std::memory_order_relaxed) == call &&
           record.count.load(std::memory_order_relaxed) == count;
  }
  if (same) return {};
  std::vector<Call> calls;
  for (int rank = 0; rank < size_; ++rank) {
    const MemberState::Record& record = RecordOf(rank);
    calls.push_back(Unpack(record.call.load(std::memory_order_relaxed), record.count.load(std::memory_order_relaxed)));
  }
  return Fail(FULLDECK_ERROR_MISMATCH,
              "group \"" + name_ + "\": the ranks made different calls as call " + std::to_string(sequence()) + ": " +
                  DescribeCalls(calls) + ". All ranks must make the same calls in the same order.",
              FindOutlier(calls));
}

void Engine::Trace(TraceEvent::Kind kind, std::uint64_t chunk, std::uint64_t begin_ns) {
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  trace_events_.push_back({kind, chunk, begin_ns, now});
}

void Engine::RecordNonfinite(std::uint64_t element, int rank) {
  MemberState::Record& record = Line(rank_).records[sequence() & 1];
  if (record.nonfinite_element.load(std::memory_order_relaxed) <= element) return;
  record.nonfinite_element.store(element, std::memory_order_relaxed);
  record.nonfinite_rank.store(rank < 0 ? kNothing : static_cast<std::uint64_t>(rank), std::memory_order_relaxed);
}

void Engine::ResolveNonfinite(bool of_all) {
  std::uint64_t element = kNothing;
  std::uint64_t cause = kNothing;
  for (int rank = 0; rank < size_; ++rank) {
    if (!of_all && rank != rank_) continue;
    const MemberState::Record& record = RecordOf(rank);
    const std::uint64_t found = record.nonfinite_element.load(std::memory_order_relaxed);
    if (found >= element) continue;
    element = found;
    cause = record.nonfinite_rank.load(std::memory_order_relaxed);
  }
  const std::lock_guard lock(nonfinite_mutex_);
  nonfinite_.reset();
  if (element == kNothing) return;
  nonfinite_ = Nonfinite{cause == kNothing ? -1 : static_cast<int>(cause), element, sequence()};
}

std::optional<Nonfinite> Engine::LastNonfinite() const {
  const std::lock_guard lock(nonfinite_mutex_);
  return nonfinite_;
}

Group::Allocation Engine::Allocate(std::uint64_t bytes) {
  SharedMemory& memory = *rendezvous_->segments[static_cast<std::size_t>(rank_)];
  const std::lock_guard lock(arena_mutex_);
  const std::optional<std::uint64_t> offset = arena_->Take(bytes);
  if (!offset) {
    return {nullptr,
            {FULLDECK_ERROR_SYSTEM,
             "group \"" + name_ + "\" cannot have " + base::FormatByteSize(bytes) + " of shared memory: its " +
                 base::FormatByteSize(memory.size() - layout_.arena) + " of address space are used up" +
                 (memory.size() == layout_.arena ? " (a limit on address space, ulimit -v, "
                                                   "leaves none)"
                                                 : "")}};
  }
  // Reserve only this allocation: pages that could not be allocated must not prevent the next allocation.
  if (const std::uint64_t until = RoundUp(*offset + bytes, kPage); until > reserved_) {
    if (base::Result<void> reserved = memory.Reserve(reserved_, until - reserved_); !reserved) {
      arena_->GiveBack(*offset);
      memory.Release(reserved_, until - reserved_);
      return {nullptr,
              {FULLDECK_ERROR_SYSTEM, "group \"" + name_ + "\" cannot have " + base::FormatByteSize(bytes) +
                                          " of shared memory: " + reserved.error().message}};
    }
    reserved_ = until;
  }
  return {memory.data() + *offset, {}};
}

void Engine::Free(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(arena_mutex_);
  FULLDECK_CHECK(arena_->GiveBack(static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - Segment(rank_))));
}

bool Engine::Owns(const void* memory, std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto begin = reinterpret_cast<std::uintptr_t>(Segment(rank_));
  if (address < begin + layout_.arena ||
      address - begin >= rendezvous_->segments[static_cast<std::size_t>(rank_)]->size()) {
    return false;
  }
  const std::lock_guard lock(arena_mutex_);
  return arena_->Holds(address - begin, bytes);
}

}  // namespace fulldeck::collectives
