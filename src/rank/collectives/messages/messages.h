// Send and receive between two members of a group: every ordered pair has a ring of bytes in the sender's segment.
// Messages of a pair come out in the order in which they went in. While a receive is open for a sender, those of its
// messages that have another tag are set aside in the receiver's own memory, so that tags never block each other; while
// none is, they stay where they are, and a sender that has filled the ring waits, so that nobody can fill a peer's
// memory.
//
// A message goes to the oldest open receive that it fits (sender or any source, and tag). A receive from any source
// asks the ranks in turn, so that none of them starves.
//
// Nothing here has a thread: an operation moves when somebody calls Progress or Wait, on both sides.
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

// One send or receive under way. Made by Messages; the data must stay until it is done.
class MessageOperation {
 public:
  // Pairs with the store that ends it, after status and data were written; sequentially consistent, as whoever waits
  // for it counts itself before it looks, and whoever ends it looks at that count afterwards.
  bool done() const { return done_.load(std::memory_order_seq_cst); }
  // Once done:
  const Status& status() const { return status_; }
  int peer() const { return peer_; }  // a receive from any source learns it here

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
  std::uint64_t number_ = 0;  // from Wiring::begun
};

// What lies in shared memory. One ring for each ordered pair, in the segment of the sender; one doorbell a rank, in the
// control block, rung by whoever has put something into or taken something out of a ring of that rank.
struct MessageRing;  // message_ring.h
struct Doorbell {
  std::atomic<std::uint32_t> rings;     // futex word: pairs with the load before a sleep
  std::atomic<std::uint32_t> sleepers;  // raised before that load, so that a ringer knows whether to wake
};
static_assert(sizeof(Doorbell) == 8);
inline constexpr std::uint64_t kMessageRingBytes = 256 * 1024;  // with its head; a multiple of the page size

class Messages {
 public:
  struct Wiring {
    int rank = 0;
    int size = 1;
    std::string group_name;
    // rings[from * size + to]: kMessageRingBytes each, zero at the start. Only those from or to `rank` are used.
    std::vector<std::byte*> rings;
    std::vector<Doorbell*> doorbells;  // by rank
    // Asked while waiting, at most every few milliseconds: is it of use to wait for this peer? −1: for anybody at all
    // (no, after an abort, or when all others are gone). Not ok ends every operation with it, after what had come by
    // then was taken; who is gone and owes nothing any more is not missed.
    std::function<Status(int peer)> health;
    // A failure of an operation that makes the group unusable (a length that does not match, a time-out).
    std::function<void(const Status&)> poison;
    // Both are called by whichever thread is here, with no lock held, maybe by several at once.

    // Told of every operation that is taken on and that ends, one at a time: for the rank board. May be empty.
    std::function<std::uint64_t(bool is_send, int peer, std::uint64_t bytes)> begun;  // gives a number for `ended`
    std::function<void(std::uint64_t number)> ended;

    std::optional<WaitPolicy> wait_policy;  // nothing: that of `size` ranks on the processors of this process
  };
  explicit Messages(Wiring wiring);
  // Operations that are not done end with FULLDECK_ERROR_ABORTED. No other thread may be in a call.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Any thread. `to` and `from` are ranks of the group and not this one; from −1 is any source. The operation may be
  // done at once. An impossible rank is an operation that is done, with FULLDECK_ERROR_ARGUMENT.
  std::shared_ptr<MessageOperation> PostSend(const void* data, std::uint64_t bytes, int to, std::uint64_t tag);
  std::shared_ptr<MessageOperation> PostReceive(void* data, std::uint64_t bytes, int from, std::uint64_t tag);

  // Moves whatever can be moved of all operations; true if anything was. Any thread; never blocks on a peer. It asks
  // health too, every few milliseconds, so that somebody who only polls hears of the dead.
  bool Progress();
  // Moves things until this operation is done. The deadline ends it (and the group) with FULLDECK_ERROR_TIMEOUT and a
  // text that says what each side waits for.
  Status Wait(MessageOperation& operation, base::TimePoint deadline);
  // Sleeps until a peer has rung since the last Progress, an operation was done (in whatever thread) or Wake was called
  // since the last WaitForBell, or the time is over: for the one thread that drives Progress.
  void WaitForBell(base::Duration at_most);
  void Wake();
  // Operations that are not done.
  std::size_t pending() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::collectives
