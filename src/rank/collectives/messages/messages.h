// Send and receive between two members of a group: every ordered pair has a ring of bytes in the sender's segment.
// Messages of a pair arrive in the order in which they were sent. While a receive from a sender is open, that sender's
// messages with other tags are set aside in the receiver's own memory, so that tags never block each other. While none
// is open, messages stay in the ring, and a sender that has filled the ring waits, so that no one can fill a peer's
// memory.
//
// A message goes to the oldest open receive that matches it (sender or any source, and tag). A receive from any source
// tries the ranks in turn, so that none of them starves.
//
// There is no thread here: an operation moves when a thread calls Progress or Wait, on both sides.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/status.h"
#include "collectives/waiting.h"

namespace fulldeck::collectives {

// One send or receive. Created by Messages; the data must stay valid until it is done.
class MessageOperation {
 public:
  // Pairs with the store that ends the operation, after status and data were written. Sequentially consistent: a waiter
  // counts itself before it loads done_, and the thread that ends the operation loads that count afterwards.
  bool done() const { return done_.load(std::memory_order_seq_cst); }
  // Valid once done:
  const Status& status() const { return status_; }
  int peer() const { return peer_; }  // for a receive from any source: the actual sender

 private:
  friend class MessageTraffic;  // message_traffic.h
  std::atomic<bool> done_{false};
  Status status_;
  bool is_send_ = false;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t moved_ = 0;
  std::uint64_t tag_ = 0;
  int peer_ = -1;
  bool any_source_ = false;
  std::uint64_t number_ = 0;  // returned by Wiring::begun
};

// What is in shared memory: one ring per ordered pair, in the segment of the sender; one doorbell per rank, in the
// control block, rung by a peer that has written to or read from a ring of that rank.
struct MessageRing;  // message_ring.h
struct Doorbell {
  std::atomic<std::uint32_t> rings;     // futex word: pairs with the load before a sleep
  std::atomic<std::uint32_t> sleepers;  // incremented before that load, so that a ringer knows whether to wake
};
static_assert(sizeof(Doorbell) == 8);
inline constexpr std::uint64_t kMessageRingBytes = 256 * 1024;  // including its counters; a multiple of the page size

class Messages {
 public:
  struct Wiring {
    int rank = 0;
    int size = 1;
    std::string group_name;
    // rings[from * size + to]: kMessageRingBytes each, zero at the start. Only those from or to `rank` are used.
    std::vector<std::byte*> rings;
    std::vector<Doorbell*> doorbells;  // by rank
    // Called while waiting, at most every few milliseconds: can this peer still make progress? −1: can any peer (no,
    // after an abort, or when all others are gone)? A status that is not ok ends every operation with it, after
    // everything that had arrived was taken. A peer that is gone and owes nothing is not reported.
    std::function<Status(int peer)> health;
    // A failure of an operation that makes the group unusable (mismatched length, timeout).
    std::function<void(const Status&)> poison;
    // Both are called on whichever thread detects it, with no lock held, possibly by several threads concurrently.

    // Called for every operation that starts and that ends, one at a time: for the rank board. May be empty.
    std::function<std::uint64_t(bool is_send, int peer, std::uint64_t bytes)> begun;  // returns a number for `ended`
    std::function<void(std::uint64_t number)> ended;

    std::optional<WaitPolicy> wait_policy;  // nullopt: that of `size` ranks on the CPUs of this process
  };
  explicit Messages(Wiring wiring);
  // Ends open operations with FULLDECK_ERROR_ABORTED. No other thread may be in a call.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Thread safe. `to` and `from` are ranks of the group other than this one; from −1 is any source. The operation may
  // be done on return. For an invalid rank, the operation is done, with FULLDECK_ERROR_ARGUMENT.
  std::shared_ptr<MessageOperation> PostSend(const void* data, std::uint64_t bytes, int to, std::uint64_t tag);
  std::shared_ptr<MessageOperation> PostReceive(void* data, std::uint64_t bytes, int from, std::uint64_t tag);

  // Moves whatever can be moved of all operations; true if anything was. Thread safe; never blocks on a peer. Also
  // calls health every few milliseconds, so that a caller that only polls notices dead peers.
  bool Progress();
  // Makes progress until this operation is done. At the deadline, the operation (and the group) fails with
  // FULLDECK_ERROR_TIMEOUT and a text that says what each side waits for.
  Status Wait(MessageOperation& operation, base::TimePoint deadline);
  // Sleeps until a peer has rung since the last Progress, an operation was done (on any thread), Wake was called since
  // the last WaitForBell, or the time is over: for the one thread that drives Progress.
  void WaitForBell(base::Duration at_most);
  void Wake();
  // Number of operations that are not done.
  std::size_t pending() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::collectives
