// The bytes of a rank board (docs/wire-format.md): one header, then one record per rank of this node. Layout only;
// rank_board.h creates and reads boards, rank_board_writer.cc implements how a rank writes its record.
//
// Reserved bytes are zero. A later field may use reserved bytes without a new version if zero means "not reported"; any
// other change, including a new value of an enumeration, requires a new version.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "fulldeck/rank_board.h"
#include "wire/bytes_header.h"
#include "wire/published.h"

namespace fulldeck::wire {

inline constexpr char kBoardMagic[] = "FDRBOARD";
#ifdef FULLDECK_TEST_BOARD_VERSION  // a test's agent of another version
inline constexpr std::uint32_t kBoardVersion = FULLDECK_TEST_BOARD_VERSION;
#else
inline constexpr std::uint32_t kBoardVersion = 1;
#endif
inline constexpr std::uint32_t kMaxBoardRanks = 4096;
inline constexpr int kBoardGroups = FULLDECK_BOARD_GROUPS;
inline constexpr int kBoardChecks = FULLDECK_BOARD_CHECKS;
// A reader polls rarely and would miss the first steps: the writer keeps them.
inline constexpr std::uint64_t kFirstBatches = 3;

// Text: UTF-8, always zero-terminated and padded with zeros.
template <std::size_t kBytes>
using BoardText = std::array<char, kBytes>;

// The length of the longest prefix of `text` that has at most `limit` bytes and ends with a whole character.
std::size_t WholeCharacters(std::string_view text, std::size_t limit);

template <std::size_t kBytes>
void PutText(BoardText<kBytes>& to, std::string_view text) {
  to.fill('\0');
  text = text.substr(0, text.find('\0'));
  text.copy(to.data(), WholeCharacters(text, kBytes - 1));
}

// Written once, before the board is shared with any other process.
struct BoardHeaderBytes {
  BytesHeader header;  // length: of the whole board
  std::uint32_t records_at;
  std::uint32_t record_bytes;
  std::uint32_t local_ranks;
  std::uint32_t first_rank;
  std::uint32_t world_size;
  std::uint32_t attempt;
  std::uint64_t made_ns;  // CLOCK_MONOTONIC, like all times here
  BoardText<192> run_id;
};
static_assert(sizeof(BoardHeaderBytes) == 240 && std::is_trivially_copyable_v<BoardHeaderBytes>);

struct SupervisionBytes {
  std::uint32_t pid;
  std::uint32_t state;
  std::uint64_t start_ticks;
  std::uint64_t since_ns;
  std::int32_t wait_status;
  std::uint32_t card_use;
  BoardText<32> card;
  BoardText<48> card_serial;
  BoardText<96> processors;
  std::array<std::uint64_t, 5> reserved;
};

struct ProcessBytes {
  std::uint32_t pid;
  std::uint32_t loaded;
  std::uint64_t start_ticks;
  std::uint64_t since_ns;
  BoardText<64> program;
  std::uint64_t stack_signal;  // 0: none
  std::array<std::uint64_t, 3> reserved;
};

struct LoopBytes {
  std::uint32_t phase;
  std::uint32_t has_loss;
  std::uint64_t phase_since_ns;
  std::uint64_t step;
  std::uint64_t total_steps;
  std::uint64_t epoch;
  std::uint64_t step_at_ns;
  std::uint64_t last_step_ns;
  std::uint64_t loss_bits;  // of a double
  std::uint64_t samples;
  std::uint64_t data_ns;
  std::uint64_t compute_ns;
  std::uint64_t communication_ns;
  std::uint64_t checkpoint_ns;
  std::uint64_t memory_bytes;
  std::uint64_t memory_peak_bytes;
  std::uint64_t batch_fingerprint;
  std::uint64_t batch_step;
  std::uint64_t parameters_fingerprint;
  std::uint64_t parameters_step;
  std::uint64_t first_batches_reported;  // 0 to kFirstBatches
  std::uint64_t first_batches;       // hash of their steps and fingerprints
  std::uint64_t reductions;
  std::uint64_t unreduced_steps;
  std::uint64_t repeated_orders;
  std::uint64_t saved_file;
  std::array<std::uint64_t, 6> reserved;
};

struct HeartbeatBytes {
  std::uint64_t count;
  std::uint64_t at_ns;
  std::uint64_t reserved;
};

struct CollectiveBytes {
  std::uint64_t group;  // 0: left
  BoardText<16> name;
  std::uint32_t size;
  std::uint32_t rank;
  std::uint32_t operation;
  std::uint32_t datatype;
  std::int32_t root;
  std::uint32_t owner;  // pid of the process that took the slot
  std::uint64_t count;
  std::uint64_t bytes;
  std::uint64_t sequence;   // of the collective that began last; 0: none yet
  std::uint64_t completed;  // of the collective that ended last
  std::uint64_t since_ns;
  std::uint64_t ended_ns;
  std::uint64_t fingerprint;
  std::uint64_t history;
  std::uint64_t waited_ns;
  std::uint64_t waiting_since_ns;  // waited_ns covers the time up to here
  std::array<std::uint64_t, 3> reserved;
};

struct ErrorBytes {
  std::uint64_t at_ns;
  std::uint64_t count;
  std::uint32_t code;     // FULLDECK_BOARD_FAILURE_…; 0: not set
  std::uint32_t culprit;  // RANK + 1 of the rank that caused it; 0: unknown
  BoardText<416> text;
};

struct ObservationBytes {
  std::uint32_t state;
  std::uint32_t reserved;
  std::uint64_t value;
  std::uint64_t count;
  std::uint64_t step;
  BoardText<80> text;
};

// Each member has one writing thread and its own cache lines.
struct RankRecord {
  Published<SupervisionBytes> supervision;
  Published<ProcessBytes> process;
  Published<LoopBytes> loop;
  Published<HeartbeatBytes> heartbeat;
  // The group of each slot; 0: free. Claimed by compare-and-swap from 0, released by storing 0, with acquire and
  // release order, so that the next owner of a slot sees what the previous one wrote to it.
  alignas(64) std::array<std::atomic<std::uint64_t>, kBoardGroups> claims;
  std::array<Published<CollectiveBytes>, kBoardGroups> groups;
  Published<ErrorBytes> error;
  std::array<Published<ObservationBytes>, kBoardChecks> checks;
  // For the log files. Relaxed additions suffice: the count is independent of other data.
  std::atomic<std::uint64_t> lost_log_bytes;
  // When fulldeck's own last probe of the rank's card ended; 0: none yet. Relaxed: independent of other data.
  std::atomic<std::uint64_t> probed_ns;
  // Space for future fields.
  std::array<std::uint64_t, 30> reserved;
};
static_assert(sizeof(SupervisionBytes) == 248 && sizeof(Published<SupervisionBytes>) == 512);
static_assert(sizeof(ProcessBytes) == 120 && sizeof(Published<ProcessBytes>) == 256);
static_assert(sizeof(LoopBytes) == 248 && sizeof(Published<LoopBytes>) == 512);
static_assert(sizeof(HeartbeatBytes) == 24 && sizeof(Published<HeartbeatBytes>) == 64);
static_assert(sizeof(CollectiveBytes) == 152 && sizeof(Published<CollectiveBytes>) == 320);
static_assert(sizeof(ErrorBytes) == 440 && sizeof(Published<ErrorBytes>) == 896);
static_assert(sizeof(ObservationBytes) == 112 && sizeof(Published<ObservationBytes>) == 256);
static_assert(offsetof(RankRecord, claims) == 1344 && offsetof(RankRecord, groups) == 1408 &&
              offsetof(RankRecord, error) == 3968 && offsetof(RankRecord, checks) == 4864 &&
              offsetof(RankRecord, lost_log_bytes) == 7936 && offsetof(RankRecord, probed_ns) == 7944);
static_assert(sizeof(RankRecord) == 8192 && std::is_standard_layout_v<RankRecord> &&
              std::is_trivially_destructible_v<RankRecord>);

// The header has a page of its own, so that the records start on a page boundary.
inline constexpr std::uint32_t kBoardRecordsAt = 4096;

constexpr std::uint32_t BoardBytes(std::uint32_t local_ranks) {
  return kBoardRecordsAt + local_ranks * static_cast<std::uint32_t>(sizeof(RankRecord));
}

}  // namespace fulldeck::wire
