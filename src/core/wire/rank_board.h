// The rank board: what every rank of a run on this node is doing, in shared memory that the launcher creates and the
// ranks inherit. One board per attempt; it is gone when the last process that has it open exits. `top`, `ps`, `doctor`
// and the monitor open it as /proc/SUPERVISOR/fd/N. Ranks write their records through include/fulldeck/rank_board.h.
//
// Every process of the run can write to it, so everything that is read is validated, and strings are safe to print. Use
// it for display and verdicts, never to choose a pid to signal: that is what the registry of runs is for
// (job/runs/run_registry.h).
//
// All times are CLOCK_MONOTONIC of this node, in nanoseconds; 0: not reported. Use Age() for how long ago a time was:
// it may be ahead of the reader's clock.
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

// Time between `at_ns` and `now`; nullopt for 0, zero for a time in the future.
std::optional<base::Duration> Age(std::uint64_t at_ns, base::TimePoint now);

struct BoardRun {
  std::string run_id;  // at most 191 bytes are kept
  int attempt = 0;
  int local_ranks = 1;  // on this node
  int first_rank = 0;   // RANK of local rank 0
  int world_size = 1;
  std::uint64_t made_ns = 0;  // set by Create()
};

enum class RankState : std::uint32_t {
  kStarting = 1,  // the process is being created
  kRunning = 2,
  kStopped = 3,  // by SIGSTOP or the like
  kExited = 4,   // see wait_status
  kKilled = 5,   // by a signal; see wait_status
};
const char* RankStateName(RankState state);

// Whether the rank keeps its card busy now, judged by the launcher from the card's telemetry (docs/card-usage.md).
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
  std::uint64_t since_ns = 0;  // when it entered this state
  int wait_status = 0;         // as returned by waitpid
  std::string card;            // "gcu 3"; empty: on the CPU. At most 31 bytes
  std::string card_serial;     // at most 47 bytes
  std::string processors;      // "0-15,32-47"; at most 95 bytes
  CardUse card_use = CardUse::kNotReported;
};

// Reported by the rank itself when it starts. It may be another process than the supervised one: a script's Python.
struct RankProcess {
  ProcessIdentity process;
  std::uint32_t loaded = 0;  // FULLDECK_BOARD_AGENT and so on
  std::uint64_t since_ns = 0;
  std::string program;
  int stack_signal = 0;  // real-time signal that makes it write the stacks of its threads; 0: not supported
};

// The public header documents each phase.
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

// A fingerprint and its step; fingerprints of two ranks can be compared only at the same step.
struct StepFingerprint {
  std::uint64_t value = 0;
  std::uint64_t step = 0;
};

struct Loop {
  Phase phase = Phase::kNotReported;
  std::uint64_t phase_since_ns = 0;
  std::uint64_t step = 0;
  std::uint64_t total_steps = 0;  // 0: unknown
  std::uint64_t epoch = 0;
  std::uint64_t step_at_ns = 0;    // when `step` was reported
  std::uint64_t last_step_ns = 0;  // between the last two reports of a step; 0: fewer than two reports
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
  // Combines the first three batches that the rank reported, once it has reported them: equal on two ranks that had the
  // same batches in the same steps.
  std::optional<std::uint64_t> first_batches;
  // Documented in the public header; 0: not reported.
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

// The last collective of one process group, as this rank sees it.
struct Collective {
  std::uint64_t group = 0;  // the same on all members
  std::string name;
  std::uint32_t size = 0;
  std::uint32_t rank = 0;       // this rank's number in the group
  std::uint32_t operation = 0;  // 0: no collective yet
  std::uint32_t datatype = 0;
  int root = -1;  // -1: none
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;   // of the collective that began last; 0: none yet
  std::uint64_t completed = 0;  // of the collective that ended last
  std::uint64_t since_ns = 0;   // when `sequence` began
  std::uint64_t ended_ns = 0;   // when `completed` ended
  std::uint64_t fingerprint = 0;
  std::uint64_t history = 0;  // hash of the fingerprints of all collectives so far: differs from the first mismatch on
  std::uint64_t waited_ns = 0;  // total time in collectives; lowest on the rank that the others wait for

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
  std::string text;  // lines separated by '\n'
  std::uint64_t at_ns = 0;
  std::uint64_t count = 0;  // errors reported so far
  FailureCode code = FailureCode::kNotReported;
  int culprit = -1;  // RANK of the rank that caused it, which may be this one; -1: unknown
};

// What a rank observed about its own script; the public header documents the values of each check.
struct Observation {
  std::uint32_t state = 0;
  std::uint64_t value = 0;
  std::uint64_t count = 0;
  std::uint64_t step = 0;
  std::string text;
};

// A mapping of a board. Reading: thread safe. WriteSupervision: only the supervisor's thread.
class RankBoard {
 public:
  // Creates a board whose size is sealed. The descriptor is close-on-exec: pass it to the ranks under another number.
  static base::Result<RankBoard> Create(const BoardRun& run);
  // Opens for reading: /proc/PID/fd/N of a supervisor. Rejects what is not a board, other versions, and a board whose
  // size is not sealed (it could be truncated under its readers) or does not match its header.
  static base::Result<RankBoard> Open(const std::string& path);
  // The same for a descriptor, which stays the caller's and may be closed after the call.
  static base::Result<RankBoard> OpenFd(int fd);
  // Opens for writing the record of a rank; for the C interface.
  static base::Result<RankBoard> OpenFdToWrite(int fd);

  RankBoard(RankBoard&& other) noexcept;
  RankBoard& operator=(RankBoard&& other) noexcept;
  ~RankBoard();

  // The descriptor of a board that was created, or opened by path; otherwise -1.
  int fd() const { return fd_.get(); }
  // As it was when the board was created or opened; later writes to the header have no effect.
  const BoardRun& run() const { return run_; }

  // The board must have been created by this object.
  void WriteSupervision(int local_rank, const Supervision& supervision);

  // nullopt if there is no complete, valid value; `reading` is then the reason. Local ranks: 0 to run().local_ranks -
  // 1; slots: 0 to FULLDECK_BOARD_GROUPS - 1. A value that a rank wrote before it died stays readable.
  std::optional<Supervision> ReadSupervision(int local_rank, Reading* reading = nullptr) const;
  std::optional<RankProcess> ReadProcess(int local_rank, Reading* reading = nullptr) const;
  std::optional<Loop> ReadLoop(int local_rank, Reading* reading = nullptr) const;
  std::optional<Heartbeat> ReadHeartbeat(int local_rank, Reading* reading = nullptr) const;
  // Also nullopt (kNeverWritten) for the slot of a group that the rank has left.
  std::optional<Collective> ReadCollective(int local_rank, int slot, Reading* reading = nullptr) const;
  // When the rank last left a group whose slot has not been taken again; 0: none.
  std::uint64_t LastLeave(int local_rank) const;
  // Checks: 0 to FULLDECK_BOARD_CHECKS - 1.
  std::optional<Observation> ReadObservation(int local_rank, int check, Reading* reading = nullptr) const;
  std::optional<RankError> ReadError(int local_rank, Reading* reading = nullptr) const;

  // Bytes that the rank could not write to its log files because the disk was full.
  std::uint64_t LostLogBytes(int local_rank) const;

  // When fulldeck's last probe of the rank's card ended; 0: none yet.
  std::uint64_t Probed(int local_rank) const;

  // For the C interface and tests; the board must be open for writing.
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
