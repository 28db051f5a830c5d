// The rank board: what every rank of a run on this host is doing, in memory that the launcher makes and the ranks
// inherit. One board for each attempt, gone with the last process that has it open. `top`, `ps`, `doctor` and the
// monitor open it as /proc/SUPERVISOR/fd/N. Ranks write their records through include/fulldeck/rank_board.h.
//
// Every process of the run can write to it, so everything that is read is checked, and texts are fit to be shown. What
// it tells is for people and verdicts, never a reason to signal a pid: the registry of runs is
// (job/runs/run_registry.h).
//
// All times are CLOCK_MONOTONIC of this host, in nanoseconds; 0: not told. Ask Age how long ago that is: a time may lie
// ahead of the reader's clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "fulldeck/rank_board.h"
#include "wire/process_identity.h"
#include "wire/published.h"

namespace fulldeck::wire {

struct RankRecord;

// How long before `now`; nothing for 0, zero for what lies ahead.
std::optional<base::Duration> Age(std::uint64_t at_ns, base::TimePoint now);

struct BoardRun {
  std::string run_id;  // at most 191 bytes are kept
  int attempt = 0;
  int local_ranks = 1;  // on this host
  int first_rank = 0;   // RANK of local rank 0
  int world_size = 1;
  std::uint64_t made_ns = 0;  // set by Create
};

enum class RankState : std::uint32_t {
  kStarting = 1,  // the process is being made
  kRunning = 2,
  kStopped = 3,  // by SIGSTOP or the like
  kExited = 4,   // wait_status says how
  kKilled = 5,   // by a signal; wait_status says which
};
const char* RankStateName(RankState state);

// Whether the rank's card works for it now, as the launcher judges by the card's telemetry (docs/card-usage.md).
enum class CardUse : std::uint32_t {
  kNotReported = FULLDECK_BOARD_CARD_NOT_TOLD,
  kUnknown = FULLDECK_BOARD_CARD_UNKNOWN,
  kBusy = FULLDECK_BOARD_CARD_BUSY,
  kIdle = FULLDECK_BOARD_CARD_IDLE,
};

// Written by the launcher's supervisor.
struct Supervision {
  ProcessIdentity process;  // pid 0: none yet
  RankState state = RankState::kStarting;
  std::uint64_t since_ns = 0;  // when it got into this state
  int wait_status = 0;         // as waitpid gives it
  std::string card;            // "gcu 3"; empty: on the host's processors. At most 31 bytes
  std::string card_serial;     // at most 47 bytes
  std::string processors;      // "0-15,32-47"; at most 95 bytes
  CardUse card_use = CardUse::kNotReported;
};

// Told by the rank itself, at its start. It can be another process than the supervised one: a script's Python.
struct RankProcess {
  ProcessIdentity process;
  std::uint32_t loaded = 0;  // FULLDECK_BOARD_AGENT and so on
  std::uint64_t since_ns = 0;
  std::string program;
  int stack_signal = 0;  // on this real-time signal it writes the stacks of its threads; 0: it does not
};

// What each means stands in the public header.
enum class Phase : std::uint32_t {
  kNotReported = 0,
  kStarting = FULLDECK_BOARD_STARTING,
  kInit = FULLDECK_BOARD_INIT,
  kLoading = FULLDECK_BOARD_LOADING,
  kCompiling = FULLDECK_BOARD_COMPILING,
  kData = FULLDECK_BOARD_DATA,
  kCompute = FULLDECK_BOARD_COMPUTE,
  kCommunication = FULLDECK_BOARD_COMMUNICATION,
  kCheckpoint = FULLDECK_BOARD_CHECKPOINT,
  kValidation = FULLDECK_BOARD_VALIDATION,
  kFinished = FULLDECK_BOARD_FINISHED,
  kOther = FULLDECK_BOARD_OTHER_PHASE,
};
const char* PhaseName(Phase phase);

// A fingerprint and the step that it belongs to; two ranks can be compared at the same step only.
struct StepFingerprint {
  std::uint64_t value = 0;
  std::uint64_t step = 0;
};

struct Loop {
  Phase phase = Phase::kNotReported;
  std::uint64_t phase_since_ns = 0;
  std::uint64_t step = 0;
  std::uint64_t total_steps = 0;  // 0: not known
  std::uint64_t epoch = 0;
  std::uint64_t step_at_ns = 0;    // when `step` was told
  std::uint64_t last_step_ns = 0;  // between the last two times that a step was told; 0: fewer than two
  std::optional<double> loss;      // may be NaN
  std::uint64_t samples = 0;
  // Sums since the loop began.
  std::uint64_t data_ns = 0;
  std::uint64_t compute_ns = 0;
  std::uint64_t communication_ns = 0;
  std::uint64_t checkpoint_ns = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_peak_bytes = 0;
  std::optional<StepFingerprint> batch;
  std::optional<StepFingerprint> parameters;
  // Of the first three batches that the rank told, when it has told them: equal on two ranks that had the same batches
  // in the same steps.
  std::optional<std::uint64_t> first_batches;
  // What each means stands in the public header; 0: not told.
  std::uint64_t reductions = 0;
  std::uint64_t unreduced_steps = 0;
  std::uint64_t repeated_orders = 0;
  std::uint64_t saved_file = 0;
};

struct Heartbeat {
  std::uint64_t count = 0;
  std::uint64_t at_ns = 0;
};

// The numbers are those of the public header: FULLDECK_BOARD_ALL_REDUCE gives "all_reduce", FULLDECK_BOARD_FLOAT32
// "float32".
const char* OperationName(std::uint32_t operation);
const char* DatatypeName(std::uint32_t datatype);

// The last call of one group of ranks, as this rank sees it.
struct Collective {
  std::uint64_t group = 0;  // the same on all members
  std::string name;
  std::uint32_t size = 0;
  std::uint32_t rank = 0;       // of this rank in the group
  std::uint32_t operation = 0;  // 0: no call yet
  std::uint32_t datatype = 0;
  int root = -1;  // -1: none
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;   // of the call that began last; 0: none yet
  std::uint64_t completed = 0;  // of the call that ended last
  std::uint64_t since_ns = 0;   // when `sequence` began
  std::uint64_t ended_ns = 0;   // when `completed` ended
  std::uint64_t fingerprint = 0;
  std::uint64_t history = 0;  // made from the fingerprints of all calls: differs from the first different call on
  std::uint64_t waited_ns =
      0;  // between beginning and end, all calls together: the rank that others wait for has least

  bool in_flight() const { return completed < sequence; }
};

// What kind of failure a rank reported; the numbers are those of the public header.
enum class FailureCode : std::uint32_t {
  kNotReported = 0,
  kOther = FULLDECK_BOARD_FAILURE_OTHER,
  kPeerLost = FULLDECK_BOARD_FAILURE_PEER_LOST,
  kDifferentCalls = FULLDECK_BOARD_FAILURE_DIFFERENT_CALLS,
  kNonfinite = FULLDECK_BOARD_FAILURE_NONFINITE,
  kTimeout = FULLDECK_BOARD_FAILURE_TIMEOUT,
};
// "peer-lost"; empty for kNotReported.
const char* FailureCodeName(FailureCode code);

struct RankError {
  std::string text;  // lines apart by '\n'
  std::uint64_t at_ns = 0;
  std::uint64_t count = 0;  // errors told so far
  FailureCode code = FailureCode::kNotReported;
  int culprit = -1;  // RANK of the rank that began it, which may be this one; -1: not known
};

// What a rank observed of its own script; the public header says what the figures of each check mean.
struct Observation {
  std::uint32_t state = 0;
  std::uint64_t value = 0;
  std::uint64_t count = 0;
  std::uint64_t step = 0;
  std::string text;
};

// A mapping of a board. Reading: any thread. WriteSupervision: one thread, that of the supervisor.
class RankBoard {
 public:
  // A new board, its size sealed. The descriptor is closed on exec: give it to the ranks under a number of their own.
  static base::Result<RankBoard> Create(const BoardRun& run);
  // To read: /proc/PID/fd/N of a supervisor. Refuses what is no board, another version, and a board whose size is not
  // sealed (it could be cut under its readers) or does not fit its header.
  static base::Result<RankBoard> Open(const std::string& path);
  // The same for a descriptor, which stays the caller's and may be closed at once.
  static base::Result<RankBoard> OpenFd(int fd);
  // To write the record of a rank; for the C interface.
  static base::Result<RankBoard> OpenFdToWrite(int fd);

  RankBoard(RankBoard&& other) noexcept;
  RankBoard& operator=(RankBoard&& other) noexcept;
  ~RankBoard();

  // Of a board that was made, or opened by path; else -1.
  int fd() const { return fd_.get(); }
  // As it was when the board was made or opened; later writes to the header change nothing.
  const BoardRun& run() const { return run_; }

  // The board must have been made here.
  void WriteSupervision(int local_rank, const Supervision& supervision);

  // Nothing when there is no whole, sound value; `reading` then says why. Local ranks: 0 to run().local_ranks - 1;
  // slots: 0 to FULLDECK_BOARD_GROUPS - 1. A value that a rank wrote before it died stays.
  std::optional<Supervision> ReadSupervision(int local_rank, Reading* reading = nullptr) const;
  std::optional<RankProcess> ReadProcess(int local_rank, Reading* reading = nullptr) const;
  std::optional<Loop> ReadLoop(int local_rank, Reading* reading = nullptr) const;
  std::optional<Heartbeat> ReadHeartbeat(int local_rank, Reading* reading = nullptr) const;
  // Nothing (kNeverWritten) too for a slot whose group was left.
  std::optional<Collective> ReadCollective(int local_rank, int slot, Reading* reading = nullptr) const;
  // When the rank left a group whose slot nobody has taken since, the last of several; 0: none.
  std::uint64_t LastLeave(int local_rank) const;
  // Checks: 0 to FULLDECK_BOARD_CHECKS - 1.
  std::optional<Observation> ReadObservation(int local_rank, int check, Reading* reading = nullptr) const;
  std::optional<RankError> ReadError(int local_rank, Reading* reading = nullptr) const;

  // Bytes that the rank could not write to its log files, whose disk was full.
  std::uint64_t LostLogBytes(int local_rank) const;

  // When a probe of fulldeck's own on the rank's card ended, the last of several; 0: none did.
  std::uint64_t Probed(int local_rank) const;

  // For the C interface and tests; the board must be open to be written.
  RankRecord& RecordToWrite(int local_rank);

 private:
  RankBoard() = default;
  static base::Result<RankBoard> Map(int fd, bool writable, const std::string& what);
  const RankRecord& Record(int local_rank) const;
  void Unmap();

  base::UniqueFd fd_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  bool writable_ = false;
  BoardRun run_;
};

}  // namespace fulldeck::wire
