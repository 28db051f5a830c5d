#include "wire/rank_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "wire/rank_board_layout.h"

namespace fulldeck::wire {
namespace {

constexpr std::uint32_t kMaxPid = 1U << 22;     // the kernel's own limit
constexpr std::uint32_t kMaxNumber = 1U << 30;  // of ranks and attempts: above any real value, and the sum of two fits
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

constexpr const char* kStateNames[] = {nullptr, "starting", "running", "stopped", "exited", "killed"};
constexpr const char* kPhaseNames[] = {"not told", "starting",      "init",       "loading",    "compiling", "data",
                                       "compute",  "communication", "checkpoint", "validation", "finished",  "other"};
constexpr const char* kOperationNames[] = {"none",       "barrier", "broadcast", "all_reduce",     "reduce",
                                           "all_gather", "gather",  "scatter",   "reduce_scatter", "all_to_all",
                                           "send",       "receive", "other",     "meeting"};
constexpr const char* kDatatypeNames[] = {"no data", "bool",    "int8",      "uint8",      "int16",
                                          "int32",   "int64",   "float8",    "float16",    "bfloat16",
                                          "float32", "float64", "complex64", "complex128", "other"};
static_assert(std::size(kStateNames) == static_cast<std::size_t>(RankState::kKilled) + 1);
static_assert(std::size(kPhaseNames) == FULLDECK_BOARD_OTHER_PHASE + 1);
static_assert(std::size(kOperationNames) == FULLDECK_BOARD_MEETING + 1);
static_assert(std::size(kDatatypeNames) == FULLDECK_BOARD_OTHER_DATATYPE + 1);

template <std::size_t kCount>
const char* NameAt(const char* const (&names)[kCount], std::uint32_t index) {
  return index < kCount && names[index] != nullptr ? names[index] : "?";
}

// The text, made printable; nullopt if it is not terminated.
template <std::size_t kBytes>
std::optional<std::string> TakeText(const BoardText<kBytes>& from) {
  const auto end = std::find(from.begin(), from.end(), '\0');
  if (end == from.end()) return std::nullopt;
  return base::Printable(std::string_view(from.data(), static_cast<std::size_t>(end - from.begin())));
}

// The same for text of several lines.
template <std::size_t kBytes>
std::optional<std::string> TakeLines(const BoardText<kBytes>& from) {
  const auto end = std::find(from.begin(), from.end(), '\0');
  if (end == from.end()) return std::nullopt;
  std::vector<std::string> lines;
  for (const auto line :
       base::Split(std::string_view(from.data(), static_cast<std::size_t>(end - from.begin())), '\n')) {
    lines.push_back(base::Printable(line));
  }
  return base::Join(lines, "\n");
}

std::optional<StepFingerprint> TakeFingerprint(std::uint64_t value, std::uint64_t step) {
  if (value == 0) return std::nullopt;
  return StepFingerprint{value, step};
}

std::uint64_t NowNanoseconds() {
  return static_cast<std::uint64_t>(base::SteadyClock::Instance().Now().time_since_epoch().count());
}

// Sets `reading` for a value that is invalid.
std::nullopt_t Damaged(Reading* reading) {
  if (reading != nullptr) *reading = Reading::kDamaged;
  return std::nullopt;
}

template <typename T>
std::optional<T> ReadSection(const Published<T>& part, Reading* reading) {
  Reading ignored{};
  return part.Read(reading != nullptr ? reading : &ignored);
}

// Memory that can be sealed and, if the kernel supports the flag (6.3), is not executable. A system may be configured
// to reject memfds without the flag.
base::UniqueFd MakeMemory() {
  constexpr unsigned kNeverRun = 8;  // MFD_NOEXEC_SEAL, which older headers lack
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  base::UniqueFd fd(memfd_create("fulldeck-board", kFlags | kNeverRun));
  if (!fd.valid() && errno == EINVAL) fd.Reset(memfd_create("fulldeck-board", kFlags));
  return fd;
}

base::Result<void> CheckBoard(const BoardHeaderBytes& header, std::uint64_t size, const std::string& what) {
  const auto format = CheckHeader(header.header, kBoardMagic, kBoardVersion, BoardBytes(kMaxBoardRanks), what);
  if (!format) return format.error();
  // From here on, the version is known to be ours: whatever does not match is damage.
  const auto damaged = [&what](const std::string& how) {
    return base::Error{what + " is damaged: " + how +
                       ". Start the run again; if it comes back, something in a rank writes where it must not"};
  };
  if (header.header.length != size) {
    return damaged("its header says " + std::to_string(header.header.length) + " bytes, and it has " +
                   std::to_string(size));
  }
  if (header.local_ranks < 1 || header.local_ranks > kMaxBoardRanks) {
    return damaged("its header says " + std::to_string(header.local_ranks) + " ranks");
  }
  if (header.records_at != kBoardRecordsAt || header.record_bytes != sizeof(RankRecord) ||
      BoardBytes(header.local_ranks) != size) {
    return damaged("its header says " + std::to_string(header.local_ranks) + " records of " +
                   std::to_string(header.record_bytes) + " bytes from byte " + std::to_string(header.records_at) +
                   " on, which do not fill " + std::to_string(size) + " bytes");
  }
  if (header.world_size > kMaxNumber || header.first_rank > kMaxNumber || header.attempt > kMaxNumber ||
      header.first_rank + header.local_ranks > header.world_size) {
    return damaged("its header says ranks " + std::to_string(header.first_rank) + " and " +
                   std::to_string(header.local_ranks - 1) + " more of " + std::to_string(header.world_size));
  }
  if (!TakeText(header.run_id)) return damaged("the run's name does not end");
  return {};
}

}  // namespace

std::size_t WholeCharacters(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text.size();
  std::size_t length = limit;
  // Steps back to the first byte of the character that would be cut; text that is not UTF-8 is cut at the limit.
  while (length > 0 && limit - length < 4 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  return limit - length < 4 ? length : limit;
}

std::optional<base::Duration> Age(std::uint64_t at_ns, base::TimePoint now) {
  if (at_ns == 0) return std::nullopt;
  const auto now_ns = static_cast<std::uint64_t>(now.time_since_epoch().count());
  return base::Duration(at_ns < now_ns ? static_cast<std::int64_t>(now_ns - at_ns) : 0);
}

const char* RankStateName(RankState state) {
  return NameAt(kStateNames, static_cast<std::uint32_t>(state));
}

const char* PhaseName(Phase phase) {
  return NameAt(kPhaseNames, static_cast<std::uint32_t>(phase));
}

const char* OperationName(std::uint32_t operation) {
  return NameAt(kOperationNames, operation);
}

const char* DatatypeName(std::uint32_t datatype) {
  return NameAt(kDatatypeNames, datatype);
}

base::Result<RankBoard> RankBoard::Create(const BoardRun& run) {
  const std::int64_t behind_last = std::int64_t{run.first_rank} + run.local_ranks;
  if (run.local_ranks < 1 || run.local_ranks > static_cast<int>(kMaxBoardRanks) || run.first_rank < 0 ||
      behind_last > run.world_size || run.world_size > static_cast<int>(kMaxNumber) || run.attempt < 0 ||
      run.attempt > static_cast<int>(kMaxNumber)) {
    return base::Error{"there can be no rank board for " + std::to_string(run.local_ranks) + " ranks from rank " +
                       std::to_string(run.first_rank) + " on, of " + std::to_string(run.world_size) + ", in attempt " +
                       std::to_string(run.attempt)};
  }
  base::UniqueFd fd = MakeMemory();
  if (!fd.valid()) return base::ErrnoError("cannot make the rank board (memfd_create)");
  const auto local_ranks = static_cast<std::uint32_t>(run.local_ranks);
  BoardHeaderBytes header{};
  header.header = MakeHeader(kBoardMagic, kBoardVersion, BoardBytes(local_ranks));
  header.records_at = kBoardRecordsAt;
  header.record_bytes = sizeof(RankRecord);
  header.local_ranks = local_ranks;
  header.first_rank = static_cast<std::uint32_t>(run.first_rank);
  header.world_size = static_cast<std::uint32_t>(run.world_size);
  header.attempt = static_cast<std::uint32_t>(run.attempt);
  header.made_ns = NowNanoseconds();
  PutText(header.run_id, run.run_id);
  // Allocate the pages now: a page that could not be allocated later would kill the writing rank with SIGBUS.
  if (fchmod(fd.get(), 0600) != 0 || ftruncate(fd.get(), BoardBytes(local_ranks)) != 0 ||
      fallocate(fd.get(), 0, 0, BoardBytes(local_ranks)) != 0 ||
      pwrite(fd.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return base::ErrnoError("cannot make the rank board of " + std::to_string(BoardBytes(local_ranks)) + " bytes");
  }
  auto board = Map(fd.get(), true, "the rank board");
  if (board) board->fd_ = std::move(fd);
  return board;
}

base::Result<RankBoard> RankBoard::Open(const std::string& path) {
  // The path may refer to something else by now: nonblocking, so that opening a pipe does not block.
  base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return base::ErrnoError("cannot open the rank board " + path);
  auto board = Map(fd.get(), false, "the rank board " + path);
  if (board) board->fd_ = std::move(fd);
  return board;
}

// The board keeps no descriptor: a program that closes all unknown descriptors would let the number be reused for
// something else.
base::Result<RankBoard> RankBoard::OpenFd(int fd) {
  return Map(fd, false, "the rank board (descriptor " + std::to_string(fd) + ")");
}

base::Result<RankBoard> RankBoard::OpenFdToWrite(int fd) {
  return Map(fd, true, "the rank board (descriptor " + std::to_string(fd) + ")");
}

base::Result<RankBoard> RankBoard::Map(int fd, bool writable, const std::string& what) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return base::ErrnoError(what);
  const int seals = S_ISREG(status.st_mode) ? fcntl(fd, F_GET_SEALS) : -1;
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return base::Error{what + " is not memory of a fixed size, as a rank board is: it is something else by now",
                       ENOENT};
  }
  BoardHeaderBytes header{};
  const ssize_t got = pread(fd, &header, sizeof header, 0);
  if (got < 0) return base::ErrnoError(what);
  // A short file leaves the rest of the header zero, which is not a valid board.
  const auto sound = CheckBoard(header, static_cast<std::uint64_t>(status.st_size), what);
  if (!sound) {
    const bool other_version = std::string_view(header.header.magic, sizeof header.header.magic) == kBoardMagic &&
                               header.header.version != kBoardVersion;
    return base::Error{sound.error().message, other_version ? EPROTO : EINVAL};
  }
  RankBoard board;
  board.bytes_ = header.header.length;
  board.writable_ = writable;
  void* memory = mmap(nullptr, board.bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return base::ErrnoError("cannot map " + what);
  board.memory_ = memory;
  board.run_.run_id = *TakeText(header.run_id);
  board.run_.attempt = static_cast<int>(header.attempt);
  board.run_.local_ranks = static_cast<int>(header.local_ranks);
  board.run_.first_rank = static_cast<int>(header.first_rank);
  board.run_.world_size = static_cast<int>(header.world_size);
  board.run_.made_ns = header.made_ns;
  return board;
}

RankBoard::RankBoard(RankBoard&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      writable_(other.writable_),
      run_(std::move(other.run_)) {}

RankBoard& RankBoard::operator=(RankBoard&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  fd_ = std::move(other.fd_);
  memory_ = std::exchange(other.memory_, nullptr);
  bytes_ = other.bytes_;
  writable_ = other.writable_;
  run_ = std::move(other.run_);
  return *this;
}

RankBoard::~RankBoard() {
  Unmap();
}

void RankBoard::Unmap() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  memory_ = nullptr;
}

const RankRecord& RankBoard::Record(int local_rank) const {
  FULLDECK_CHECK(memory_ != nullptr && local_rank >= 0 && local_rank < run_.local_ranks);
  const char* const at = static_cast<const char*>(memory_) + BoardBytes(static_cast<std::uint32_t>(local_rank));
  return *reinterpret_cast<const RankRecord*>(at);
}

RankRecord& RankBoard::RecordToWrite(int local_rank) {
  FULLDECK_CHECK(writable_);
  return const_cast<RankRecord&>(Record(local_rank));
}

void RankBoard::WriteSupervision(int local_rank, const Supervision& supervision) {
  SupervisionBytes bytes{};
  bytes.pid = static_cast<std::uint32_t>(supervision.process.pid);
  bytes.start_ticks = supervision.process.start_ticks;
  bytes.state = static_cast<std::uint32_t>(supervision.state);
  bytes.since_ns = supervision.since_ns;
  bytes.wait_status = supervision.wait_status;
  bytes.card_use = static_cast<std::uint32_t>(supervision.card_use);
  PutText(bytes.card, supervision.card);
  PutText(bytes.card_serial, supervision.card_serial);
  PutText(bytes.processors, supervision.processors);
  RecordToWrite(local_rank).supervision.Write(bytes);
}

std::optional<Supervision> RankBoard::ReadSupervision(int local_rank, Reading* reading) const {
  const auto bytes = ReadSection(Record(local_rank).supervision, reading);
  if (!bytes) return std::nullopt;
  auto card = TakeText(bytes->card);
  auto card_serial = TakeText(bytes->card_serial);
  auto processors = TakeText(bytes->processors);
  if (!card || !card_serial || !processors || bytes->pid > kMaxPid || bytes->state < 1 ||
      bytes->state >= std::size(kStateNames) || bytes->card_use > FULLDECK_BOARD_CARD_IDLE) {
    return Damaged(reading);
  }
  Supervision supervision;
  supervision.process = {static_cast<int>(bytes->pid), bytes->start_ticks};
  supervision.state = static_cast<RankState>(bytes->state);
  supervision.since_ns = bytes->since_ns;
  supervision.wait_status = bytes->wait_status;
  supervision.card_use = static_cast<CardUse>(bytes->card_use);
  supervision.card = std::move(*card);
  supervision.card_serial = std::move(*card_serial);
  supervision.processors = std::move(*processors);
  return supervision;
}

std::optional<RankProcess> RankBoard::ReadProcess(int local_rank, Reading* reading) const {
  const auto bytes = ReadSection(Record(local_rank).process, reading);
  if (!bytes) return std::nullopt;
  auto program = TakeText(bytes->program);
  if (!program || bytes->pid < 1 || bytes->pid > kMaxPid) return Damaged(reading);
  RankProcess process;
  process.process = {static_cast<int>(bytes->pid), bytes->start_ticks};
  process.loaded = bytes->loaded;
  process.since_ns = bytes->since_ns;
  process.program = std::move(*program);
  // A number that is not a real-time signal would have another effect on the rank: report none then.
  const bool real_time = bytes->stack_signal >= static_cast<std::uint64_t>(SIGRTMIN) &&
                         bytes->stack_signal <= static_cast<std::uint64_t>(SIGRTMAX);
  process.stack_signal = real_time ? static_cast<int>(bytes->stack_signal) : 0;
  return process;
}

std::optional<Loop> RankBoard::ReadLoop(int local_rank, Reading* reading) const {
  const auto bytes = ReadSection(Record(local_rank).loop, reading);
  if (!bytes) return std::nullopt;
  if (bytes->phase >= std::size(kPhaseNames) || bytes->has_loss > 1 || bytes->first_batches_reported > kFirstBatches) {
    return Damaged(reading);
  }
  Loop loop;
  loop.phase = static_cast<Phase>(bytes->phase);
  loop.phase_since_ns = bytes->phase_since_ns;
  loop.step = bytes->step;
  loop.total_steps = bytes->total_steps;
  loop.epoch = bytes->epoch;
  loop.step_at_ns = bytes->step_at_ns;
  loop.last_step_ns = bytes->last_step_ns;
  if (bytes->has_loss != 0) {
    double loss = 0;
    std::memcpy(&loss, &bytes->loss_bits, sizeof loss);
    loop.loss = loss;
  }
  loop.samples = bytes->samples;
  loop.data_ns = bytes->data_ns;
  loop.compute_ns = bytes->compute_ns;
  loop.communication_ns = bytes->communication_ns;
  loop.checkpoint_ns = bytes->checkpoint_ns;
  loop.memory_bytes = bytes->memory_bytes;
  loop.memory_peak_bytes = bytes->memory_peak_bytes;
  loop.batch = TakeFingerprint(bytes->batch_fingerprint, bytes->batch_step);
  loop.parameters = TakeFingerprint(bytes->parameters_fingerprint, bytes->parameters_step);
  if (bytes->first_batches_reported == kFirstBatches) loop.first_batches = bytes->first_batches;
  loop.reductions = bytes->reductions;
  loop.unreduced_steps = bytes->unreduced_steps;
  loop.repeated_orders = bytes->repeated_orders;
  loop.saved_file = bytes->saved_file;
  return loop;
}

std::optional<Heartbeat> RankBoard::ReadHeartbeat(int local_rank, Reading* reading) const {
  const auto bytes = ReadSection(Record(local_rank).heartbeat, reading);
  if (!bytes) return std::nullopt;
  return Heartbeat{bytes->count, bytes->at_ns};
}

std::optional<Collective> RankBoard::ReadCollective(int local_rank, int slot, Reading* reading) const {
  FULLDECK_CHECK(slot >= 0 && slot < kBoardGroups);
  const auto bytes = ReadSection(Record(local_rank).groups[static_cast<std::size_t>(slot)], reading);
  if (!bytes) return std::nullopt;
  if (bytes->group == 0) {
    if (reading != nullptr) *reading = Reading::kNeverWritten;
    return std::nullopt;
  }
  auto name = TakeText(bytes->name);
  const bool sound = name && bytes->operation < std::size(kOperationNames) &&
                     bytes->datatype < std::size(kDatatypeNames) && bytes->rank < bytes->size && bytes->root >= -1 &&
                     bytes->completed <= bytes->sequence;
  if (!sound) return Damaged(reading);
  Collective collective;
  collective.group = bytes->group;
  collective.name = std::move(*name);
  collective.size = bytes->size;
  collective.rank = bytes->rank;
  collective.operation = bytes->operation;
  collective.datatype = bytes->datatype;
  collective.root = bytes->root;
  collective.count = bytes->count;
  collective.bytes = bytes->bytes;
  collective.sequence = bytes->sequence;
  collective.completed = bytes->completed;
  collective.since_ns = bytes->since_ns;
  collective.ended_ns = bytes->ended_ns;
  collective.fingerprint = bytes->fingerprint;
  collective.history = bytes->history;
  collective.waited_ns = bytes->waited_ns;
  return collective;
}

std::uint64_t RankBoard::LastLeave(int local_rank) const {
  std::uint64_t last = 0;
  for (const auto& slot : Record(local_rank).groups) {
    const auto bytes = ReadSection(slot, nullptr);
    if (bytes && bytes->group == 0) last = std::max(last, bytes->ended_ns);
  }
  return last;
}

std::uint64_t RankBoard::LostLogBytes(int local_rank) const {
  return Record(local_rank).lost_log_bytes.load(std::memory_order_relaxed);
}

std::uint64_t RankBoard::Probed(int local_rank) const {
  return Record(local_rank).probed_ns.load(std::memory_order_relaxed);
}

std::optional<Observation> RankBoard::ReadObservation(int local_rank, int check, Reading* reading) const {
  FULLDECK_CHECK(check >= 0 && check < kBoardChecks);
  const auto bytes = ReadSection(Record(local_rank).checks[static_cast<std::size_t>(check)], reading);
  if (!bytes) return std::nullopt;
  auto text = TakeText(bytes->text);
  if (!text) return Damaged(reading);
  return Observation{bytes->state, bytes->value, bytes->count, bytes->step, std::move(*text)};
}

std::optional<RankError> RankBoard::ReadError(int local_rank, Reading* reading) const {
  const auto bytes = ReadSection(Record(local_rank).error, reading);
  if (!bytes) return std::nullopt;
  auto text = TakeLines(bytes->text);
  if (!text) return Damaged(reading);
  RankError error{std::move(*text), bytes->at_ns, bytes->count};
  // An unknown code from a newer writer still counts as a failure.
  error.code =
      bytes->code > FULLDECK_BOARD_FAILURE_TIMEOUT ? FailureCode::kOther : static_cast<FailureCode>(bytes->code);
  if (bytes->culprit > 0 && static_cast<int>(bytes->culprit - 1) < run_.world_size) {
    error.culprit = static_cast<int>(bytes->culprit - 1);
  }
  return error;
}

const char* FailureCodeName(FailureCode code) {
  switch (code) {
    case FailureCode::kNotReported:
      return "";
    case FailureCode::kOther:
      return "other";
    case FailureCode::kPeerLost:
      return "peer-lost";
    case FailureCode::kDifferentCalls:
      return "different-calls";
    case FailureCode::kNonfinite:
      return "nonfinite";
    case FailureCode::kTimeout:
      return "timeout";
  }
  return "";
}

}  // namespace fulldeck::wire
