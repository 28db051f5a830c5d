// What Messages does under its lock: which message goes to which operation, and moving the bytes between operations and
// rings. Knows nothing of threads, sleeping and deadlines.
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

// Not thread safe. Nothing here waits, so every call is over after a bounded number of bytes.
class MessageTraffic {
 public:
  using Operation = std::shared_ptr<MessageOperation>;

  explicit MessageTraffic(const Messages::Wiring& wiring);

  // Operations that cannot be are done when they come out. Touches nothing: needs no lock.
  Operation Make(void* data, std::uint64_t bytes, int peer, std::uint64_t tag, bool is_send) const;
  // Takes an operation on and moves what can be moved of it at once. After a failure it ends with that.
  void AddSend(const Operation& send);
  void AddReceive(const Operation& receive);

  // Moves one message or one burst of each direction, so that all of them get their turn; true if anything moved.
  bool Round();

  // Ends all operations, and those that come later, with this. The first failure stays. `reported`: to the group.
  void FailAll(const Status& status, bool reported = false);
  // The same, since this operation was waited for too long.
  void FailOnTime(const MessageOperation& operation, base::Duration waited);

  // What happened since it was last asked, for whoever holds the lock to tell after letting go of it.
  struct Events {
    bool ended_some = false;        // operations
    std::optional<Status> failure;  // that was found here, and so is news to the group
  };
  Events TakeEvents();

  // The ranks that an open operation needs; one from any source needs none in particular.
  std::vector<int> WaitedFor() const;

  // Operations that are not done. Any thread.
  std::size_t pending() const { return pending_.load(std::memory_order_relaxed); }
  const std::string& here() const { return here_; }  // "rank 0 of group world"

 private:
  struct Outgoing {
    RingWriter ring;
    std::deque<Operation> sends;  // in order; only the first one writes
    std::uint32_t number = 0;     // of the first one's message
    bool head_put = false;
  };
  // A message that came before its receive.
  struct Aside {
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
    std::unique_ptr<std::byte[]> data;
  };
  struct Incoming {
    RingReader ring;
    std::uint32_t number = 0;  // of the next message
    // The message under way, if there is one: into a receive, or else into the last of those set aside.
    bool under_way = false;
    Operation receive;
    std::byte* to = nullptr;
    std::uint64_t to_come = 0;

    std::deque<Aside> aside;  // in the order of their coming
    std::size_t open = 0;     // receives for this sender alone that no message goes to yet
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
  std::size_t open_any_ = 0;        // of these, from any source
  int next_source_ = 0;             // whom a receive from any source asks first
  std::uint64_t aside_bytes_ = 0;
  std::optional<Status> failure_;
  Events events_;
  std::atomic<std::size_t> pending_{0};  // a figure: orders nothing
};

}  // namespace fulldeck::collectives
