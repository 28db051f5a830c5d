// The base of all calls of a group: shared memory, barrier, failure of the group, and the begin and end of a call. The
// collectives are in reducing_calls.cc and moving_calls.cc; group.h is the interface.
//
// Threads: between Begin and End, the call belongs to the thread that holds call_mutex. Fail and Failed are thread
// safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/board_slot.h"
#include "collectives/call.h"
#include "collectives/control_block.h"
#include "collectives/group.h"
#include "collectives/helper_thread.h"
#include "collectives/kernels/reduce_kernel.h"
#include "collectives/memory/arena.h"
#include "collectives/memory/segment_layout.h"
#include "collectives/node_levels.h"
#include "collectives/rendezvous/rendezvous.h"
#include "collectives/trace_file.h"
#include "collectives/waiting.h"

namespace fulldeck::collectives {

class Engine {
 public:
  // Runs the rendezvous and sets everything up. `out` is set only if the status is ok.
  static Status Create(const GroupOptions& options, std::unique_ptr<Engine>& out);
  ~Engine();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const SegmentLayout& layout() const { return layout_; }
  const NodeLevels& levels() const { return levels_; }
  InstructionSet instruction_set() const { return instruction_set_; }
  bool check_finite() const { return control_->check_finite != 0; }
  std::uint64_t direct_bytes() const { return control_->direct_bytes; }
  HelperThread& helper() { return *helper_; }
  std::uint64_t cache_bytes() const { return cache_bytes_; }
  std::byte* Segment(int rank) const { return segments_[static_cast<std::size_t>(rank)]; }
  std::string Describe() const;

  // ---- failure ----
  // Makes the group unusable for all members; the first failure is kept. Returns the failure of the group. `culprit`:
  // the member that caused it; -1: unknown.
  Status Fail(int code, const std::string& text, int culprit = -1);
  // The failure of the group, found by this or another member.
  Status Failed();
  // Failed(), and whether a member that has not arrived at barrier number `barrier` is dead or has left.
  Status Health(std::uint32_t barrier);
  // Failed(), and whether any member is dead or has left: no call can succeed any more.
  Status CheckHealth();
  // For sends and receives, which are not ordered with the calls: whether `peer` (−1: any) is lost.
  Status PeerHealth(int peer);

  // FULLDECK_ERROR_ARGUMENT in a forked child, which has no groups. Checked before taking any lock, because another
  // thread may have held it when the process was forked.
  Status CheckProcess() const;

  // ---- begin and end of a call ----
  std::mutex& call_mutex() { return call_mutex_; }
  // Records the call. `place`: where this member's data is (MemberState::Record::place).
  Status Begin(const Call& call, std::uint64_t bytes, std::uint64_t place);
  // Arrives and waits for all members. Call CompareCalls after the first barrier of a call.
  Status Barrier();
  // All members must have made the same call; otherwise FULLDECK_ERROR_MISMATCH, with each rank's call.
  Status CompareCalls();
  void End(const Status& status);
  const MemberState::Record& RecordOf(int rank) const;
  std::uint64_t sequence() const { return sequence_.load(std::memory_order_relaxed); }

  // The slots of a call: the first one is known before the first barrier, all of them after it.
  int first_slot() const { return first_slot_; }
  void SetLastSlot(int slot) { first_slot_ = slot == 0 ? 1 : 0; }
  // Allocates pages for the slots that only calls with data on cards use; once per group.
  Status ReserveForCards();

  // ---- results that are not finite ----
  // Records what this member found in the current call; the lowest element is kept. Other members see it after the next
  // barrier.
  void RecordNonfinite(std::uint64_t element, int rank);
  // After the last barrier: combines the records of all members, or uses only this member's.
  void ResolveNonfinite(bool of_all);
  std::optional<Nonfinite> LastNonfinite() const;

  // ---- memory ----
  Group::Allocation Allocate(std::uint64_t bytes);
  void Free(void* memory);
  bool Owns(const void* memory, std::uint64_t bytes) const;

  Messages& messages() { return *messages_; }
  void SetTimeout(base::Duration timeout);
  base::Duration timeout() const { return timeout_.load(std::memory_order_relaxed); }

  // ---- trace ----
  bool traced() const { return trace_ != nullptr || trace_file_ != nullptr; }
  void Trace(TraceEvent::Kind kind, std::uint64_t chunk, std::uint64_t begin_ns);
  void SetTrace(std::function<void(std::span<const TraceEvent>)> sink) { trace_ = std::move(sink); }

 private:
  Engine() = default;
  Status Prepare(const GroupOptions& options);
  MemberState& Line(int rank) const { return control_->ranks[rank]; }
  std::vector<int> Gone() const;
  Status GoneStatus(const std::vector<int>& gone) const;
  std::vector<int> MissingAt(std::uint32_t barrier) const;
  std::string TimeoutText(std::uint32_t barrier) const;
  std::string DescribeProgress(int rank) const;
  void ReportToBoard(const Status& status) const;
  std::string NoMemoryText(const base::Error& error) const;

  int rank_ = 0;
  int size_ = 1;
  std::string name_;
  std::uint32_t fork_generation_ = 0;
  InstructionSet instruction_set_ = InstructionSet::kPlain;
  WaitPolicy wait_policy_;
  std::unique_ptr<HelperThread> helper_;
  std::uint64_t cache_bytes_ = 0;
  NodeLevels levels_;
  SegmentLayout layout_;
  std::unique_ptr<Rendezvous> rendezvous_;
  ControlBlock* control_ = nullptr;
  std::vector<std::byte*> segments_;

  std::mutex call_mutex_;
  std::atomic<std::uint64_t> sequence_{0};  // of the current or last call
  std::uint32_t barrier_ = 0;               // number of the last barrier at which this member arrived
  int first_slot_ = 0;
  std::atomic<bool> reserved_for_cards_{false};
  Call call_;
  base::TimePoint deadline_;
  std::atomic<base::Duration> timeout_{std::chrono::minutes(30)};
  std::unique_ptr<BoardSlot> board_;
  std::function<void(std::span<const TraceEvent>)> trace_;
  std::unique_ptr<TraceFile> trace_file_;
  std::vector<TraceEvent> trace_events_;
  std::uint64_t began_ns_ = 0;  // of a traced call

  mutable std::mutex failure_mutex_;
  Status failure_;  // set once it is known here

  mutable std::mutex nonfinite_mutex_;
  std::optional<Nonfinite> nonfinite_;

  mutable std::mutex arena_mutex_;
  std::optional<Arena> arena_;
  std::uint64_t reserved_ = 0;  // offset in the arena up to which pages are allocated

  std::unique_ptr<MessageBoard> message_board_;  // guarded by the lock of messages_
  std::unique_ptr<Messages> messages_;
};

}  // namespace fulldeck::collectives
