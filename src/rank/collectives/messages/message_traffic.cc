#include "collectives/messages/message_traffic.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "base/text.h"

namespace fulldeck::collectives {
namespace {

// Number of bytes that are moved before the other side is notified, so that it copies one part while this side copies
// the next.
constexpr std::uint64_t kPartBytes = 32 * 1024;
constexpr int kMessagesPerFirstPoll = 16;
constexpr std::size_t kMaxListed = 4;

std::uint64_t MemoryOfTheMachine() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return kMaxMessageBytes;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
}

std::string Bytes(std::uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string NameOf(int rank) {
  return rank < 0 ? "any rank" : "rank " + std::to_string(rank);
}

}  // namespace

MessageTraffic::MessageTraffic(const Messages::Wiring& wiring)
    : rank_(wiring.rank),
      size_(wiring.size),
      doorbells_(wiring.doorbells),
      most_aside_(MemoryOfTheMachine()),
      here_("rank " + std::to_string(rank_) + " of group " + base::Printable(wiring.group_name)),
      begun_(wiring.begun),
      ended_(wiring.ended),
      outgoing_(static_cast<std::size_t>(size_)),
      incoming_(static_cast<std::size_t>(size_)) {
  const auto ring = [&](int from, int to) {
    return wiring
        .rings[static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(to)];
  };
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    OutgoingTo(peer).ring = RingWriter(ring(rank_, peer));
    IncomingFrom(peer).ring = RingReader(ring(peer, rank_));
  }
}

void MessageTraffic::RingBellOf(int rank) {
  Doorbell& doorbell = *doorbells_[static_cast<std::size_t>(rank)];
  Ring(doorbell.rings, doorbell.sleepers);
}

// ---- start and end of an operation ----

std::optional<std::string> MessageTraffic::Refusal(const void* data, std::uint64_t bytes, int peer,
                                                   bool is_send) const {
  const bool from_any = !is_send && peer == FULLDECK_ANY_SOURCE;
  std::string why;
  if (from_any && size_ == 1) {
    why = "there is no other rank in this group";
  } else if (!from_any && (peer < 0 || peer >= size_)) {
    why = "the group has ranks 0 to " + std::to_string(size_ - 1);
  } else if (peer == rank_) {
    why = "a rank cannot exchange messages with itself; copy the data instead";
  } else if (bytes > kMaxMessageBytes) {
    why = Bytes(bytes) + " cannot be";
  } else if (data == nullptr && bytes > 0) {
    why = Bytes(bytes) + " at a null pointer";
  } else {
    return std::nullopt;
  }
  const std::string name = from_any ? "any rank" : "rank " + std::to_string(peer);
  return here_ + (is_send ? ": send to " : ": receive from ") + name + ": " + why;
}

MessageTraffic::Operation MessageTraffic::Make(void* data, std::uint64_t bytes, int peer, std::uint64_t tag,
                                               bool is_send) const {
  auto operation = std::make_shared<MessageOperation>();
  operation->is_send_ = is_send;
  operation->data_ = static_cast<std::byte*>(data);
  operation->bytes_ = bytes;
  operation->tag_ = tag;
  operation->any_source_ = !is_send && peer == FULLDECK_ANY_SOURCE;
  operation->peer_ = peer;
  if (auto refusal = Refusal(data, bytes, peer, is_send)) {
    operation->status_ = Status(FULLDECK_ERROR_ARGUMENT, std::move(*refusal));
    operation->done_.store(true, std::memory_order_seq_cst);
  }
  return operation;
}

// After done_ is set, the owner may free the operation's data. So End() comes after the last access to the data, and an
// operation that it is called for is in none of the lists any more, or is removed before the lock is released.
void MessageTraffic::End(MessageOperation& operation, const Status& status) {
  operation.status_ = status;
  if (ended_) ended_(operation.number_);
  operation.done_.store(true, std::memory_order_seq_cst);  // pairs with the load in done()
  pending_.fetch_sub(1, std::memory_order_relaxed);
  events_.ended_some = true;
}

void MessageTraffic::Register(MessageOperation& operation) {
  pending_.fetch_add(1, std::memory_order_relaxed);
  if (begun_) operation.number_ = begun_(operation.is_send_, operation.peer_, operation.bytes_);
}

void MessageTraffic::AddSend(const Operation& send) {
  Register(*send);
  if (failure_) return End(*send, *failure_);
  auto& sends = OutgoingTo(send->peer_).sends;
  sends.push_back(send);
  if (sends.size() == 1) PumpOut(send->peer_);
}

void MessageTraffic::AddReceive(const Operation& receive) {
  Register(*receive);
  if (failure_) return End(*receive, *failure_);
  const int first = receive->any_source_ ? next_source_ : receive->peer_;
  const int sources = receive->any_source_ ? size_ : 1;
  receives_.push_back(receive);
  ++(receive->any_source_ ? open_any_ : IncomingFrom(receive->peer_).open);
  const auto is_open = [&] { return !receives_.empty() && receives_.back() == receive; };
  for (int i = 0; i < sources && is_open(); ++i) {
    const int from = (first + i) % size_;
    if (from == rank_ || TakeFromAside(receive, from)) continue;
    for (int poll = 0; poll < kMessagesPerFirstPoll && is_open() && PumpIn(from); ++poll) {
    }
  }
}

std::vector<int> MessageTraffic::WaitedFor() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    const Incoming& in = IncomingFrom(rank);
    if (!OutgoingTo(rank).sends.empty() || in.receive != nullptr || in.open > 0) ranks.push_back(rank);
  }
  return ranks;
}

// Invariant: once failure_ is set, no operation is open, and Register() is followed by End() for every later one. So
// every waiter returns, whatever the peers do.
void MessageTraffic::FailAll(const Status& status, bool reported) {
  if (failure_) return;
  failure_ = status;
  if (reported) events_.failure = status;
  for (Outgoing& out : outgoing_) {
    for (const Operation& send : out.sends) End(*send, status);
    out.sends.clear();
  }
  for (Incoming& in : incoming_) {
    if (in.receive) End(*in.receive, status);
    in.receive.reset();
    in.under_way = false;
    in.to_come = 0;
    in.open = 0;
    in.aside.clear();
  }
  for (const Operation& receive : receives_) End(*receive, status);
  receives_.clear();
  open_any_ = 0;
  aside_bytes_ = 0;
}

void MessageTraffic::Fail(int code, const std::string& text) {
  if (failure_) return;
  FailAll(Status(code, here_ + ": " + text), true);
}

void MessageTraffic::FailOnDamage(int from, int to, const std::string& what) {
  Fail(FULLDECK_ERROR_SYSTEM, "the shared memory for messages from rank " + std::to_string(from) + " to rank " +
                                  std::to_string(to) + " is damaged (" + what +
                                  "); one of the two has written over it");
}

bool MessageTraffic::FailOnLength(MessageOperation& receive, int from, std::uint64_t bytes) {
  if (receive.bytes_ == bytes) return false;
  Fail(FULLDECK_ERROR_MISMATCH, "rank " + std::to_string(from) + " sent " + Bytes(bytes) + " with tag " +
                                    std::to_string(receive.tag_) + ", and the receive for it takes " +
                                    Bytes(receive.bytes_) + ": both must name the same length");
  // `receive` has been removed from receives_ (CloseReceiveFor), so FailAll did not end it.
  End(receive, *failure_);
  return true;
}

MessageTraffic::Events MessageTraffic::TakeEvents() {
  return std::exchange(events_, Events());
}

// ---- moving bytes ----

bool MessageTraffic::Round() {
  bool moved = false;
  const int first = next_source_;
  for (int i = 0; i < size_ && !failure_; ++i) {
    const int peer = (first + i) % size_;
    if (peer == rank_) continue;
    if (!OutgoingTo(peer).sends.empty()) moved = PumpOut(peer) || moved;
    if (!failure_) moved = PumpIn(peer) || moved;
  }
  return moved;
}

// Invariant: only the first send to a rank writes to the ring, and it writes its header and then all of its bytes. So
// messages never interleave, and they arrive in the order of posting.
bool MessageTraffic::PumpOut(int to) {
  Outgoing& out = OutgoingTo(to);
  bool moved = false;
  std::uint64_t unpublished = 0;
  const auto publish = [&] {
    if (unpublished == 0) return;
    // Publish before the doorbell: a peer that sees the bell sees the bytes.
    out.ring.Publish();
    RingBellOf(to);
    unpublished = 0;
    moved = true;
  };
  for (std::uint64_t burst = 0; !out.sends.empty() && burst < kRingCapacity;) {
    MessageOperation& send = *out.sends.front();
    const std::uint64_t rest = send.bytes_ - send.moved_;
    const std::uint64_t part = out.head_put ? std::min(rest, kPartBytes) : sizeof(MessageHead);
    const auto room = out.ring.RoomOrFlagWaiting(part);
    if (!room) {
      FailOnDamage(rank_, to, "more was taken than was sent");
      return true;
    }
    // The ring is full and flagged: the reader rings this rank's doorbell when it has taken something.
    if (*room < part) break;
    if (!out.head_put) {
      const MessageHead head{kMessageMagic, out.number, send.tag_, send.bytes_};
      out.ring.Put(&head, sizeof head);
      out.head_put = true;
    } else {
      out.ring.Put(send.data_ + send.moved_, part);
      send.moved_ += part;
    }
    unpublished += part;
    burst += part;
    if (send.moved_ == send.bytes_) {
      End(send, Status());
      out.sends.pop_front();
      out.head_put = false;
      ++out.number;
    }
    if (unpublished >= kPartBytes) publish();
  }
  publish();
  return moved;
}

// Invariant: at most one message per sender is in progress. Its remaining to_come bytes are the next bytes in the ring
// and go to `to`: in the memory of in.receive, or, if that is null, of in.aside.back(). Nothing is taken from the ring
// unless a receive from this sender is open or in progress, so a sender that no receive waits for cannot fill this
// process's memory.
bool MessageTraffic::PumpIn(int from) {
  Incoming& in = IncomingFrom(from);
  if (!in.receive && in.open == 0 && open_any_ == 0) return false;
  const bool begins = !in.under_way;
  if (begins && !TakeHead(from)) return failure_.has_value();
  bool moved = begins;
  bool unreleased = begins;
  const auto release = [&] {
    if (unreleased && in.ring.Release()) RingBellOf(from);
    unreleased = false;
  };
  for (std::uint64_t burst = 0; in.to_come > 0 && burst < kRingCapacity;) {
    const auto available = in.ring.Available(1);
    if (!available) {
      FailOnDamage(from, rank_, "the count of bytes is impossible");
      return true;
    }
    if (*available == 0) break;
    const std::uint64_t part = std::min({*available, in.to_come, kPartBytes});
    in.ring.Take(in.to, part);
    in.to += part;
    in.to_come -= part;
    burst += part;
    unreleased = moved = true;
    if (part == kPartBytes) release();
  }
  release();
  if (in.to_come == 0) {
    if (in.receive) End(*in.receive, Status());
    in.receive.reset();
    in.under_way = false;
  }
  return moved;
}

// False: no header has arrived, or everything has failed.
bool MessageTraffic::TakeHead(int from) {
  Incoming& in = IncomingFrom(from);
  const auto available = in.ring.Available(sizeof(MessageHead));
  if (available && *available < sizeof(MessageHead)) return false;
  MessageHead head;
  if (available) in.ring.Take(&head, sizeof head);
  if (!available) {
    FailOnDamage(from, rank_, "the count of bytes is impossible");
  } else if (head.magic != kMessageMagic || head.bytes > kMaxMessageBytes) {
    FailOnDamage(from, rank_, "what should be the head of a message is none");
  } else if (head.number != in.number) {
    FailOnDamage(from, rank_,
                 "message " + std::to_string(head.number) + " came where " + std::to_string(in.number) + " was due");
  } else {
    ++in.number;
    Match(from, head);
  }
  return !failure_;
}

// ---- matching messages and receives ----

// Invariant: a message is set aside only if no open receive fits it, and a new receive looks at the messages set aside
// before the ring. With receives_ in the order of posting and in.aside in the order of arrival, messages with the same
// sender and tag are received in the order in which they were sent.
void MessageTraffic::Match(int from, const MessageHead& head) {
  Incoming& in = IncomingFrom(from);
  const Operation receive = CloseReceiveFor(from, head.tag);
  if (!receive) return SetAside(from, head);
  if (FailOnLength(*receive, from, head.bytes)) return;
  in.under_way = true;
  in.receive = receive;
  in.to = receive->data_;
  in.to_come = head.bytes;
}

void MessageTraffic::SetAside(int from, const MessageHead& head) {
  Incoming& in = IncomingFrom(from);
  Aside aside{head.tag, head.bytes, nullptr};
  if (head.bytes > 0) {
    if (head.bytes <= most_aside_ && aside_bytes_ <= most_aside_ - head.bytes) {
      aside.data.reset(new (std::nothrow) std::byte[head.bytes]);
    }
    if (!aside.data) {
      Fail(FULLDECK_ERROR_SYSTEM, "no memory to set aside a message from rank " + std::to_string(from) + ", tag " +
                                      std::to_string(head.tag) + ", " + Bytes(head.bytes) + " (" + Bytes(aside_bytes_) +
                                      " are set aside already); receive messages in the order in which they are sent");
      return;
    }
  }
  in.under_way = true;
  in.to = aside.data.get();
  in.to_come = head.bytes;
  aside_bytes_ += head.bytes;
  in.aside.push_back(std::move(aside));
}

// The oldest open receive for this message, which is then no longer open; nullptr: none.
MessageTraffic::Operation MessageTraffic::CloseReceiveFor(int from, std::uint64_t tag) {
  for (auto receive = receives_.begin(); receive != receives_.end(); ++receive) {
    MessageOperation& operation = **receive;
    if (operation.tag_ != tag || !(operation.any_source_ || operation.peer_ == from)) continue;
    if (operation.any_source_) {
      --open_any_;
      operation.peer_ = from;
      next_source_ = (from + 1) % size_;
    } else {
      --IncomingFrom(from).open;
    }
    Operation found = std::move(*receive);
    receives_.erase(receive);
    return found;
  }
  return nullptr;
}

// If a message of this sender for an open receive was set aside, moves it there and returns true.
bool MessageTraffic::TakeFromAside(const Operation& receive, int from) {
  Incoming& in = IncomingFrom(from);
  const auto aside = std::find_if(in.aside.begin(), in.aside.end(),
                                  [&](const Aside& candidate) { return candidate.tag == receive->tag_; });
  if (aside == in.aside.end()) return false;
  // No older receive fits it: it would have received the message on arrival.
  CloseReceiveFor(from, receive->tag_);
  if (FailOnLength(*receive, from, aside->bytes)) return true;
  const bool still_comes = in.under_way && !in.receive && std::next(aside) == in.aside.end();
  const std::uint64_t came = aside->bytes - (still_comes ? in.to_come : 0);
  if (came > 0) std::memcpy(receive->data_, aside->data.get(), came);
  aside_bytes_ -= aside->bytes;
  in.aside.erase(aside);
  if (still_comes) {
    in.receive = receive;
    in.to = receive->data_ + came;
  } else {
    End(*receive, Status());
  }
  return true;
}

// ---- timeouts ----

void MessageTraffic::FailOnTime(const MessageOperation& operation, base::Duration waited) {
  char in_time[40];
  std::snprintf(in_time, sizeof in_time, " in %.1f s", std::chrono::duration<double>(waited).count());
  const std::string call = (operation.is_send_ ? "send to " : "receive from ") + NameOf(operation.peer_) + ", tag " +
                           std::to_string(operation.tag_) + ", " + Bytes(operation.bytes_) + ": ";
  Fail(FULLDECK_ERROR_TIMEOUT,
       call + (operation.is_send_ ? WhySendIsLate(operation, in_time) : WhyReceiveIsLate(operation, in_time)));
}

std::string MessageTraffic::WhySendIsLate(const MessageOperation& send, const std::string& in_time) const {
  const auto& sends = OutgoingTo(send.peer_).sends;
  const auto place = std::find_if(sends.begin(), sends.end(), [&](const auto& other) { return other.get() == &send; });
  const auto before = place - sends.begin();
  std::string text = NameOf(send.peer_) + " did not take it" + in_time + "; " + Bytes(send.moved_) + " went out";
  if (before == 1) text += ", 1 older send to it waits too";
  if (before > 1) text += ", " + std::to_string(before) + " older sends to it wait too";
  return text + ". It has no receive open for messages of this rank, or does not wait for one.";
}

std::string MessageTraffic::WhyReceiveIsLate(const MessageOperation& receive, const std::string& in_time) const {
  if (receive.peer_ >= 0 && IncomingFrom(receive.peer_).receive.get() == &receive) {
    return "only " + Bytes(receive.bytes_ - IncomingFrom(receive.peer_).to_come) + " came" + in_time + ". " +
           NameOf(receive.peer_) + " has begun to send it and does not wait for its end.";
  }
  std::string text = "nothing came" + in_time;
  std::size_t listed = 0;
  std::size_t more = 0;
  for (int from = 0; from < size_; ++from) {
    if (receive.peer_ >= 0 && from != receive.peer_) continue;
    bool named = false;
    for (const Aside& aside : IncomingFrom(from).aside) {
      if (listed == kMaxListed) {
        ++more;
        continue;
      }
      if (!named) text += "; set aside from " + NameOf(from) + ": ";
      text += (named ? ", tag " : "tag ") + std::to_string(aside.tag) + " (" + Bytes(aside.bytes) + ")";
      named = true;
      ++listed;
    }
  }
  if (more > 0) text += " and " + std::to_string(more) + " more";
  return text + ".";
}

}  // namespace fulldeck::collectives
