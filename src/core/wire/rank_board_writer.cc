#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "fulldeck/rank_board.h"
#include "wire/process_identity.h"
#include "wire/rank_board.h"
#include "wire/rank_board_layout.h"
#include "wire/variables.h"

namespace wire = fulldeck::wire;

struct fulldeck_board {
  wire::RankBoard board;
  wire::RankRecord* record;
  unsigned forks;  // value of the global `forks` when this was opened
};

namespace {

thread_local std::string last_error;

// Number of forks between this process and the one that loaded the library. Detects in a child that the board belongs
// to its parent, with one load instead of the system call getpid.
std::atomic<unsigned> forks{0};

// Several threads may report an error. A thread that finds this flag taken gives up after kErrorTries attempts, so that
// a signal handler that interrupted the owner does not wait for itself.
std::atomic_flag writing_error = ATOMIC_FLAG_INIT;
constexpr int kErrorTries = 10000;

// Invariant: after a fork the child never writes to its parent's record. The child's `forks` differs from the one
// stored in every inherited fulldeck_board, so Record() returns nullptr for it. Published<T> needs this, because it
// allows only one writer.
void InForkedChild() {
  forks.fetch_add(1, std::memory_order_relaxed);
  // The thread that held it does not exist in this process.
  writing_error.clear(std::memory_order_relaxed);
}

int Fail(int error, std::string message) {
  last_error = std::move(message);
  return -error;
}

std::uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// The record, or nullptr if this process must not write.
wire::RankRecord* Record(const fulldeck_board* board) {
  // Relaxed: changes only in a forked child, while it has one thread.
  if (board == nullptr || board->forks != forks.load(std::memory_order_relaxed)) return nullptr;
  return board->record;
}

wire::Published<wire::CollectiveBytes>* Group(const fulldeck_board* board, int slot) {
  wire::RankRecord* record = Record(board);
  if (record == nullptr || slot < 0 || slot >= wire::kBoardGroups) return nullptr;
  return &record->groups[static_cast<std::size_t>(slot)];
}

std::atomic<std::uint64_t>& Claim(wire::RankRecord& record, int slot) {
  return record.claims[static_cast<std::size_t>(slot)];
}

// The pid of the process that took the slot; 0 if unknown at the moment.
std::uint32_t Owner(const wire::RankRecord& record, int slot) {
  wire::Reading ignored{};
  const auto bytes = record.groups[static_cast<std::size_t>(slot)].Read(&ignored);
  return bytes ? bytes->owner : 0;
}

bool OwnerIsDead(const wire::RankRecord& record, int slot) {
  const std::uint32_t owner = Owner(record, slot);
  return owner != 0 && !wire::IsAlive({static_cast<int>(owner), 0});
}

// Whether a caller's struct has its size set. If the caller forgot to set it, nothing is recorded, instead of zeros.
template <typename T>
bool IsGiven(const T* from) {
  return from != nullptr && from->struct_bytes >= 2 * sizeof(std::uint64_t);
}

// A caller's struct, compiled with any version of the header: missing fields are zero.
template <typename T>
T Given(const T* from) {
  T value{};
  std::memcpy(&value, from, std::min<std::size_t>(from->struct_bytes, sizeof value));
  return value;
}

// Mixes two words into one (the finalizer of SplitMix64). Part of the format: ranks compare the results.
std::uint64_t Mix(std::uint64_t state, std::uint64_t word) {
  std::uint64_t mixed = (state ^ word) + 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return mixed ^ (mixed >> 31);
}

std::uint64_t Fingerprint(const fulldeck_board_collective& call) {
  std::uint64_t mixed = Mix(0, std::uint64_t{call.operation} << 32 | call.datatype);
  mixed = Mix(mixed, call.count);
  mixed = Mix(mixed, static_cast<std::uint32_t>(call.root));
  return mixed != 0 ? mixed : 1;
}

}  // namespace

extern "C" {

const char* fulldeck_board_error(void) {
  return last_error.c_str();
}

int fulldeck_board_open(fulldeck_board** out) {
  *out = nullptr;
  const char* const fd_text = std::getenv(wire::kBoardFdVariable);
  const char* const slot_text = std::getenv(wire::kBoardSlotVariable);
  if (fd_text == nullptr || slot_text == nullptr) {
    return Fail(ENOENT, std::string(fd_text == nullptr ? wire::kBoardFdVariable : wire::kBoardSlotVariable) +
                            " is not set: this program was not started by fulldeck run");
  }
  const auto fd = fulldeck::base::ParseInteger<int>(fd_text);
  const auto slot = fulldeck::base::ParseInteger<int>(slot_text);
  if (!fd || *fd < 0 || !slot || *slot < 0) {
    return Fail(EINVAL, std::string(wire::kBoardFdVariable) + "=" + fulldeck::base::Printable(fd_text) + " and " +
                            wire::kBoardSlotVariable + "=" + fulldeck::base::Printable(slot_text) +
                            " are not a descriptor and a number: leave them as fulldeck run set them");
  }
  if (fcntl(*fd, F_GETFD) < 0) {
    return Fail(ENOENT, "descriptor " + std::to_string(*fd) + " (" + wire::kBoardFdVariable +
                            ") is closed: start this program with it open, or do without the board");
  }
  auto board = wire::RankBoard::OpenFdToWrite(*fd);
  if (!board) {
    const int error = board.error().system_error;
    return Fail(error == EPROTO || error == ENOENT || error == ENOMEM ? error : EINVAL, board.error().message);
  }
  if (*slot >= board->run().local_ranks) {
    return Fail(EINVAL, std::string(wire::kBoardSlotVariable) + "=" + std::to_string(*slot) + ": the board has " +
                            std::to_string(board->run().local_ranks) + " records, counted from 0");
  }
  // Once per process; a forked child inherits the registration.
  static const int watching = pthread_atfork(nullptr, nullptr, InForkedChild);
  if (watching != 0) return Fail(ENOMEM, "cannot register with fork");
  wire::RankRecord* const record = &board->RecordToWrite(*slot);
  *out = new fulldeck_board{std::move(*board), record, forks.load(std::memory_order_relaxed)};
  return 0;
}

void fulldeck_board_close(fulldeck_board* board) {
  delete board;
}

void fulldeck_board_identity(fulldeck_board* board, uint32_t loaded, const char* program) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr) return;
  const wire::ProcessIdentity self = wire::ThisProcess();
  wire::ProcessBytes process = record->process.LastWritten();
  const auto pid = static_cast<std::uint32_t>(self.pid);
  // Drop the values of another process that used this record before (a script that starts programs one after the
  // other).
  if (process.pid != pid || process.start_ticks != self.start_ticks) process = {};
  process.pid = pid;
  process.start_ticks = self.start_ticks;
  process.loaded |= loaded;
  if (process.since_ns == 0) process.since_ns = Now();
  if (program != nullptr) wire::PutText(process.program, program);
  record->process.Write(process);
}

void fulldeck_board_stack_signal(fulldeck_board* board, int signal_number) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr) return;
  wire::ProcessBytes process = record->process.LastWritten();
  const auto value = static_cast<std::uint64_t>(signal_number > 0 ? signal_number : 0);
  if (process.pid != static_cast<std::uint32_t>(getpid()) || process.stack_signal == value) return;
  process.stack_signal = value;
  record->process.Write(process);
}

void fulldeck_board_phase(fulldeck_board* board, int phase) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr || phase < FULLDECK_BOARD_STARTING || phase > FULLDECK_BOARD_OTHER_PHASE) return;
  // Read-modify-write without a lock: the public header allows one writing thread at a time for each section, so
  // LastWritten() is the last value. The same holds for process, heartbeat and each group below; set_failure takes a
  // lock because any thread may report an error.
  wire::LoopBytes loop = record->loop.LastWritten();
  const auto value = static_cast<std::uint32_t>(phase);
  if (loop.phase == value) return;
  loop.phase = value;
  loop.phase_since_ns = Now();
  record->loop.Write(loop);
}

int fulldeck_board_step(fulldeck_board* board, const fulldeck_board_figures* figures) {
  wire::RankRecord* const record = Record(board);
  if (!IsGiven(figures)) return -EINVAL;
  if (record == nullptr) return 0;
  const fulldeck_board_figures given = Given(figures);
  wire::LoopBytes loop = record->loop.LastWritten();
  const std::uint64_t now = Now();
  loop.last_step_ns = loop.step_at_ns != 0 ? now - loop.step_at_ns : 0;
  loop.step_at_ns = now;
  loop.step = given.step;
  loop.total_steps = given.total_steps;
  loop.epoch = given.epoch;
  loop.has_loss = given.has_loss != 0 ? 1 : 0;
  loop.loss_bits = 0;
  if (given.has_loss != 0) std::memcpy(&loop.loss_bits, &given.loss, sizeof given.loss);
  loop.samples = given.samples;
  loop.data_ns = given.data_ns;
  loop.compute_ns = given.compute_ns;
  loop.communication_ns = given.communication_ns;
  loop.checkpoint_ns = given.checkpoint_ns;
  if (given.batch_fingerprint != 0) {
    loop.batch_fingerprint = given.batch_fingerprint;
    loop.batch_step = given.step;
    if (loop.first_batches_reported < wire::kFirstBatches) {
      ++loop.first_batches_reported;
      loop.first_batches = Mix(Mix(loop.first_batches, given.step), given.batch_fingerprint);
    }
  }
  if (given.parameters_fingerprint != 0) {
    loop.parameters_fingerprint = given.parameters_fingerprint;
    loop.parameters_step = given.step;
  }
  loop.reductions = given.reductions;
  loop.unreduced_steps = given.unreduced_steps;
  loop.repeated_orders = given.repeated_orders;
  record->loop.Write(loop);
  return 0;
}

void fulldeck_board_memory(fulldeck_board* board, uint64_t bytes_now, uint64_t bytes_peak) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr) return;
  wire::LoopBytes loop = record->loop.LastWritten();
  loop.memory_bytes = bytes_now;
  loop.memory_peak_bytes = bytes_peak;
  record->loop.Write(loop);
}

int fulldeck_board_card_use(const fulldeck_board* board) {
  const wire::RankRecord* const record = Record(board);
  if (record == nullptr) return FULLDECK_BOARD_CARD_NOT_TOLD;
  wire::Reading ignored{};
  const auto bytes = record->supervision.Read(&ignored);
  if (!bytes || bytes->card_use > FULLDECK_BOARD_CARD_IDLE) return FULLDECK_BOARD_CARD_NOT_TOLD;
  return static_cast<int>(bytes->card_use);
}

void fulldeck_board_saved(fulldeck_board* board, uint64_t file) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr) return;
  wire::LoopBytes loop = record->loop.LastWritten();
  loop.saved_file = file;
  record->loop.Write(loop);
}

void fulldeck_board_log_lost(fulldeck_board* board, uint64_t bytes) {
  wire::RankRecord* const record = Record(board);
  if (record != nullptr) record->lost_log_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void fulldeck_board_probed(fulldeck_board* board) {
  wire::RankRecord* const record = Record(board);
  if (record != nullptr) record->probed_ns.store(Now(), std::memory_order_relaxed);
}

void fulldeck_board_heartbeat(fulldeck_board* board) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr) return;
  wire::HeartbeatBytes heartbeat = record->heartbeat.LastWritten();
  ++heartbeat.count;
  heartbeat.at_ns = Now();
  record->heartbeat.Write(heartbeat);
}

int fulldeck_board_group_join(fulldeck_board* board, uint64_t group, const char* name, uint32_t size, uint32_t rank) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr || group == 0 || rank >= size) return -EINVAL;
  wire::CollectiveBytes fresh{};
  fresh.group = group;
  wire::PutText(fresh.name, name != nullptr ? name : "");
  fresh.size = size;
  fresh.rank = rank;
  fresh.root = -1;
  fresh.owner = static_cast<std::uint32_t>(getpid());
  // First look for the slot of the same group; then for a free slot; then for one of a program that had this record
  // before and exited without leaving its groups. The counters of such a program are not continued: not every rank may
  // have run it.
  for (int slot = 0; slot < wire::kBoardGroups; ++slot) {
    if (Claim(*record, slot).load(std::memory_order_acquire) != group) continue;
    if (Owner(*record, slot) != fresh.owner) Group(board, slot)->Write(fresh);
    return slot;
  }
  for (const bool take_from_the_dead : {false, true}) {
    for (int slot = 0; slot < wire::kBoardGroups; ++slot) {
      std::uint64_t holder = Claim(*record, slot).load(std::memory_order_relaxed);
      if (holder != 0 && !(take_from_the_dead && OwnerIsDead(*record, slot))) continue;
      // Acquire: pairs with the release in group_leave. Two threads that join the same group concurrently could get two
      // slots; callers rule this out, because a group has one owner, which joins it.
      if (!Claim(*record, slot).compare_exchange_strong(holder, group, std::memory_order_acquire)) continue;
      // Invariant: a slot is written only between this compare-and-swap and the store of 0 in group_leave, by the owner
      // of the group, on one thread at a time.
      Group(board, slot)->Write(fresh);
      return slot;
    }
  }
  return -ENOSPC;
}

void fulldeck_board_group_leave(fulldeck_board* board, int slot) {
  auto* const group = Group(board, slot);
  if (group == nullptr) return;
  wire::CollectiveBytes left{};
  left.ended_ns = Now();  // time of leaving, readable until the slot is taken again
  // The slot is cleared before the claim is released: a reader never sees the old group under a new claim.
  group->Write(left);
  // Release: pairs with the acquire in group_join.
  Claim(*board->record, slot).store(0, std::memory_order_release);
}

uint64_t fulldeck_board_collective_begin(fulldeck_board* board, int slot, const fulldeck_board_collective* call) {
  auto* const group = Group(board, slot);
  if (group == nullptr || !IsGiven(call)) return 0;
  fulldeck_board_collective given = Given(call);
  if (given.operation < FULLDECK_BOARD_BARRIER || given.operation > FULLDECK_BOARD_MEETING) {
    given.operation = FULLDECK_BOARD_OTHER_OPERATION;
  }
  if (given.datatype > FULLDECK_BOARD_OTHER_DATATYPE) given.datatype = FULLDECK_BOARD_OTHER_DATATYPE;
  given.root = std::max(given.root, -1);
  wire::CollectiveBytes bytes = group->LastWritten();
  if (bytes.group == 0) return 0;
  const bool was_idle = bytes.completed == bytes.sequence;
  bytes.operation = given.operation;
  bytes.datatype = given.datatype;
  bytes.root = given.root;
  bytes.count = given.count;
  bytes.bytes = given.bytes;
  bytes.sequence = given.sequence != 0 ? given.sequence : bytes.sequence + 1;
  // The caller's sequence numbers restarted.
  if (bytes.completed >= bytes.sequence) bytes.completed = bytes.sequence - 1;
  bytes.fingerprint = given.fingerprint != 0 ? given.fingerprint : Fingerprint(given);
  bytes.history = Mix(bytes.history, bytes.fingerprint);
  bytes.since_ns = Now();
  if (was_idle) bytes.waiting_since_ns = bytes.since_ns;
  group->Write(bytes);
  return bytes.sequence;
}

void fulldeck_board_collective_end(fulldeck_board* board, int slot, uint64_t sequence) {
  auto* const group = Group(board, slot);
  if (group == nullptr) return;
  wire::CollectiveBytes bytes = group->LastWritten();
  if (bytes.group == 0 || sequence > bytes.sequence || sequence <= bytes.completed) return;
  const std::uint64_t now = Now();
  bytes.completed = sequence;
  // If collectives overlap, no time is counted twice.
  bytes.waited_ns += now - bytes.waiting_since_ns;
  bytes.waiting_since_ns = now;
  bytes.ended_ns = now;
  group->Write(bytes);
}

void fulldeck_board_observe(fulldeck_board* board, int check, uint32_t state, uint64_t value, uint64_t count,
                            uint64_t step, const char* text) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr || check < 0 || check >= wire::kBoardChecks) return;
  wire::ObservationBytes observation{};
  observation.state = state;
  observation.value = value;
  observation.count = count;
  observation.step = step;
  if (text != nullptr) wire::PutText(observation.text, text);
  record->checks[static_cast<std::size_t>(check)].Write(observation);
}

void fulldeck_board_set_error(fulldeck_board* board, const char* text) {
  fulldeck_board_set_failure(board, 0, -1, text);
}

void fulldeck_board_set_failure(fulldeck_board* board, uint32_t code, int culprit, const char* text) {
  wire::RankRecord* const record = Record(board);
  if (record == nullptr || text == nullptr) return;
  // Acquire here and release below: the next writer sees what the previous one wrote.
  for (int i = 0; writing_error.test_and_set(std::memory_order_acquire); ++i) {
    if (i == kErrorTries) return;
  }
  wire::ErrorBytes error = record->error.LastWritten();
  error.at_ns = Now();
  ++error.count;
  error.code = code;
  error.culprit = culprit >= 0 ? static_cast<std::uint32_t>(culprit) + 1 : 0;
  wire::PutText(error.text, std::string_view(text, strnlen(text, error.text.size())));
  record->error.Write(error);
  writing_error.clear(std::memory_order_release);
}

}  // extern "C"
