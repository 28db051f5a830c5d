// State of simulated cards that is shared between the processes that use them and those that monitor them: busy time,
// bytes held, faults. One file per simulated node, mapped by all. Not a scheduler and not a lock: it only counts.
//
// Format: a BytesHeader ("FDSIMCRD"), then kMaxSimulatedCards cards of kSimulatedSlots slots. A slot belongs to one
// process; any of its threads may add to it. A process that dies keeps its slot until another process that needs a
// slot, or reads the counts, finds that pid and start time no longer name a running process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/result.h"
#include "wire/bytes_header.h"
#include "wire/simulated_spec.h"

namespace fulldeck::wire {

inline constexpr int kSimulatedSlots = 32;
inline constexpr int kBusyBuckets = 16;
inline constexpr std::uint64_t kBusyBucketShift = 26;  // a bucket is 2^26 ns, about 67 ms

// All words are written with relaxed order: they are independent, and a reader that sees one slightly earlier than
// another only reports a slightly older value. Only `pid` publishes: it is stored last, with release, when a slot is
// taken, and read first, with acquire.
struct SimulatedSlot {
  std::atomic<std::uint32_t> pid;
  std::atomic<std::uint32_t> claim;        // pid of the process that is taking or has taken the slot; see TakeSlot
  std::atomic<std::uint64_t> start_ticks;  // of that process, from /proc/PID/stat: detects a reused pid
  std::atomic<std::uint64_t> bytes_held;
  std::atomic<std::uint64_t> bytes_peak;
  std::atomic<std::uint64_t> operations;
  std::atomic<std::uint64_t> busy_ns;           // since the slot was taken
  std::atomic<std::uint64_t> running_since_ns;  // CLOCK_MONOTONIC start of the current operation on the card; 0 if none
  // Bucket number (upper 32 bits) and busy nanoseconds in it (lower 32): one word, so that the two always match.
  std::array<std::atomic<std::uint64_t>, kBusyBuckets> buckets;
};
static_assert(sizeof(SimulatedSlot) == 184 && std::atomic<std::uint64_t>::is_always_lock_free);

struct SimulatedCardState {
  std::atomic<std::uint32_t> faults;  // SimulatedFault bits set at run time, in addition to those of the spec
  std::atomic<std::uint32_t> slow_factor_milli;  // with kFaultSlow: 1500 means 1.5 times slower
  std::array<SimulatedSlot, kSimulatedSlots> slots;
};

struct SimulatedServerState {
  BytesHeader header;
  std::array<SimulatedCardState, kMaxSimulatedCards> cards;
};

struct SimulatedUser {
  int pid = 0;
  std::uint64_t bytes_held = 0;
};

// Busy time of one process since it opened the card, including processes that have closed it or exited since.
struct SimulatedWork {
  int slot = 0;
  int pid = 0;  // 0: it has closed the card
  std::uint64_t start_ticks = 0;
  std::uint64_t busy_ns = 0;
};

struct SimulatedUse {
  double utilization_percent = 0;  // over about the last half second
  std::uint64_t bytes_held = 0;
  std::vector<SimulatedUser> users;  // running processes that have the card open
  std::vector<SimulatedWork> work;   // one per slot ever taken; a slot that is taken again loses the earlier values
};

// A mapping of the node's file. Thread safe.
class SimulatedServer {
 public:
  // The folder of the state of simulated nodes and related files.
  static std::string FolderFor(const base::Environment& environment);
  // Path of the state file of the simulated node of `spec`.
  static std::string PathFor(const SimulatedSpec& spec, const base::Environment& environment);

  // Opens the file, and creates it if it does not exist. Rejects a file or folder that another user could have planted.
  static base::Result<std::unique_ptr<SimulatedServer>> OpenToUse(const std::string& path);
  // Opens an existing file only; nullptr if these cards have never been used.
  static base::Result<std::unique_ptr<SimulatedServer>> OpenToWatch(const std::string& path);

  ~SimulatedServer();
  SimulatedServer(const SimulatedServer&) = delete;
  SimulatedServer& operator=(const SimulatedServer&) = delete;

  SimulatedUse Use(int card, base::TimePoint now) const;
  std::uint32_t Faults(int card) const;
  double SlowFactor(int card) const;
  void SetFaults(int card, std::uint32_t faults, double slow_factor);

  // A slot for this process, or nullptr if all are taken by running processes. Unused slots are taken first, so that
  // the busy time of exited processes stays readable.
  SimulatedSlot* TakeSlot(int card);
  static void GiveBack(SimulatedSlot& slot);

  // Counts `bytes` as held unless the card would then hold more than `limit`.
  bool Hold(int card, SimulatedSlot& slot, std::uint64_t bytes, std::uint64_t limit);
  static void Release(SimulatedSlot& slot, std::uint64_t bytes);

  // One operation on the card from `begin` to `end`.
  static void Begin(SimulatedSlot& slot, base::TimePoint begin);
  static void End(SimulatedSlot& slot, base::TimePoint begin, base::TimePoint end);

 private:
  explicit SimulatedServer(SimulatedServerState* state) : state_(state) {}
  SimulatedCardState& Card(int card) const;
  SimulatedSlot* TakeSlot(int card, bool unused);
  SimulatedServerState* state_;
};

}  // namespace fulldeck::wire
