// The part of Messages that runs under its lock: matches messages to operations, and moves bytes between operations and
// rings. It has no threads, sleeps and deadlines.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/messages/message_ring.h"
#include "collectives/messages/messages.h"
#include "collectives/status.h"

namespace fulldeck::collectives {

// Not thread safe. Nothing here waits, so every call returns after a bounded number of bytes.
class MessageTraffic {
 public:
  using Operation = std::shared_ptr<MessageOperation>;

  explicit MessageTraffic(const Messages::Wiring& wiring);

  // An invalid operation is returned as already done. Does not access any state: needs no lock.
  Operation Make(void* data, std::uint64_t bytes, int peer, std::uint64_t tag, bool is_send) const;
  // Starts an operation and moves as much of it as possible now. After a failure, the operation ends with that failure.
  void AddSend(const Operation& send);
  void AddReceive(const Operation& receive);

  // Moves one message or one burst in each direction, so that all make progress; true if anything moved.
  bool Round();

  // Ends all operations, and all later ones, with this status. The first failure is kept. `reported`: passes it to the
  // group.
  void FailAll(const Status& status, bool reported = false);
  // The same, because the wait for this operation timed out.
  void FailOnTime(const MessageOperation& operation, base::Duration waited);

  // What happened since the last call; the lock holder acts on it after releasing the lock.
  struct Events {
    bool ended_some = false;        // some operations
    std::optional<Status> failure;  // found here, so the group does not know it yet
  };
  Events TakeEvents();

  // The ranks that open operations need; a receive from any source needs no particular one.
  std::vector<int> WaitedFor() const;

  // Operations that are not done. Thread safe.
  std::size_t pending() const { return pending_.load(std::memory_order_relaxed); }
  const std::string& here() const { return here_; }  // "rank 0 of group world"

 private:
  struct Outgoing {
    RingWriter ring;
    std::deque<Operation> sends;  // in order; only the first one writes
    std::uint32_t number = 0;     // of the message of the first send
    bool head_put = false;
  };
  // A message that arrived before its receive.
  struct Aside {
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
    std::unique_ptr<std::byte[]> data;
  };
  struct Incoming {
    RingReader ring;
    std::uint32_t number = 0;  // of the next message
    // The message in progress, if any: into a receive, or into the last one that was set aside.
    bool under_way = false;
    Operation receive;
    std::byte* to = nullptr;
    std::uint64_t to_come = 0;

    std::deque<Aside> aside;  // in order of arrival
    std::size_t open = 0;     // receives from this sender only that have no message yet
  };

  Outgoing& OutgoingTo(int rank) { return outgoing_[static_cast<std::size_t>(rank)]; }
  Incoming& IncomingFrom(int rank) { return incoming_[static_cast<std::size_t>(rank)]; }
  const Outgoing& OutgoingTo(int rank) const { return outgoing_[static_cast<std::size_t>(rank)]; }
  const Incoming& IncomingFrom(int rank) const { return incoming_[static_cast<std::size_t>(rank)]; }
  void RingBellOf(int rank);

  std::optional<std::string> Refusal(const void* data, std::uint64_t bytes, int peer, bool is_send) const;
  void Register(MessageOperation& operation);
  void End(MessageOperation& operation, const Status& status);
  void Fail(int code, const std::string& text);
  void FailOnDamage(int from, int to, const std::string& what);
  bool FailOnLength(MessageOperation& receive, int from, std::uint64_t bytes);

  bool PumpOut(int to);
  bool PumpIn(int from);
  bool TakeHead(int from);
  void Match(int from, const MessageHead& head);
  void SetAside(int from, const MessageHead& head);
  bool TakeFromAside(const Operation& receive, int from);
  Operation CloseReceiveFor(int from, std::uint64_t tag);
  std::string WhySendIsLate(const MessageOperation& send, const std::string& in_time) const;
  std::string WhyReceiveIsLate(const MessageOperation& receive, const std::string& in_time) const;

  const int rank_;
  const int size_;
  const std::vector<Doorbell*> doorbells_;
  const std::uint64_t most_aside_;
  const std::string here_;
  const std::function<std::uint64_t(bool, int, std::uint64_t)> begun_;
  const std::function<void(std::uint64_t)> ended_;

  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::deque<Operation> receives_;  // open ones, in the order of posting
  std::size_t open_any_ = 0;        // how many of them are from any source
  int next_source_ = 0;             // the first rank that a receive from any source tries
  std::uint64_t aside_bytes_ = 0;
  std::optional<Status> failure_;
  Events events_;
  std::atomic<std::size_t> pending_{0};  // a statistic: orders nothing
};

}  // namespace fulldeck::collectives
