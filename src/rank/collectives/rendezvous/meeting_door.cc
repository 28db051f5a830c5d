#include "collectives/rendezvous/meeting_door.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;

// A connection that has not proven anything after this long is closed. A member that was merely slow calls again.
constexpr base::Duration kPatienceWithCallers = 5s;
constexpr int kMostStrangers = 64;
// How long the holder of this member's place may be a left-over of the meeting before.
constexpr base::Duration kPatienceWithHolder = 1s;
// With hundreds of members that are not there yet, calling all at once would be all that the machine does.
constexpr int kMostCallsAtOnce = 16;

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

}  // namespace

MeetingDoor::MeetingDoor(std::string key, std::string group, const Greeting& own, base::TimePoint deadline)
    : key_(std::move(key)),
      group_(std::move(group)),
      own_(own),
      began_(Now()),
      deadline_(deadline),
      next_call_(began_) {}

base::Result<void> MeetingDoor::Tend(const std::vector<bool>& here) {
  std::erase_if(callers_, [&](const Introduction& caller) {
    const bool silent = Now() - caller.since() > kPatienceWithCallers;
    if (silent && caller.called() < 0) CountStranger(caller.who());
    return silent;
  });
  if (Now() < next_call_) return {};
  // Quick while everybody is just starting, slow when somebody takes minutes.
  next_call_ = Now() + std::clamp<base::Duration>((Now() - began_) / 16, 200us, 10ms);
  if (!has_place()) {
    if (auto taken = TakePlace(); !taken) return taken;
  }
  return has_place() ? CallMissing(here) : base::Result<void>();
}

base::TimePoint MeetingDoor::NextDue(const std::vector<bool>& here) const {
  base::TimePoint due = base::TimePoint::max();
  bool calls = !closed_ && !has_place();
  for (int rank = 0; rank < own_.rank; ++rank) calls = calls || (!closed_ && !here[static_cast<std::size_t>(rank)]);
  if (calls) due = next_call_;
  for (const Introduction& caller : callers_) due = std::min(due, caller.since() + kPatienceWithCallers + 1ms);
  return due;
}

base::Result<void> MeetingDoor::TakePlace() {
  auto listener = ListenAt(MeetingAddress(key_, group_, own_.rank), own_.size + kMostStrangers);
  if (listener) {
    listener_ = *std::move(listener);
    place_taken_by_ = -1;
    std::erase_if(callers_, [&](const Introduction& caller) { return caller.called() == own_.rank; });
    return {};
  }
  if (listener.error().system_error != EADDRINUSE) return listener.error();
  const base::Duration patience = std::min<base::Duration>(kPatienceWithHolder, (deadline_ - began_) / 2);
  // If the holder can prove that it is of this group, there are two of one rank.
  return Now() - began_ > patience && !IsCalling(own_.rank) ? Call(own_.rank) : base::Result<void>();
}

bool MeetingDoor::IsCalling(int rank) const {
  return std::any_of(callers_.begin(), callers_.end(), [&](const auto& caller) { return caller.called() == rank; });
}

std::optional<pid_t> MeetingDoor::Unanswering(int rank) const {
  for (const Introduction& caller : callers_) {
    if (caller.called() == rank) return caller.who().pid;
  }
  return std::nullopt;
}

base::Result<void> MeetingDoor::CallMissing(const std::vector<bool>& here) {
  int calls = 0;
  for (int i = 0; i < own_.rank && calls < kMostCallsAtOnce; ++i) {
    const int rank = std::exchange(next_to_call_, (next_to_call_ + 1) % own_.rank);
    if (here[static_cast<std::size_t>(rank)] || IsCalling(rank)) continue;
    if (auto called = Call(rank); !called) return called;
    ++calls;
  }
  return {};
}

base::Result<void> MeetingDoor::Call(int rank) {
  auto socket = ConnectTo(MeetingAddress(key_, group_, rank));
  if (socket) {
    callers_.emplace_back(*std::move(socket), rank, own_);
    if (rank == own_.rank) place_taken_by_ = callers_.back().who().pid;
    return {};
  }
  const int reason = socket.error().system_error;
  const bool comes_later = reason == ECONNREFUSED || reason == EAGAIN || reason == EINTR;
  return comes_later ? base::Result<void>() : socket.error();
}

base::Result<void> MeetingDoor::AcceptCallers() {
  while (true) {
    auto socket = AcceptFrom(listener_.get());
    if (!socket) {
      return socket.error().system_error == EAGAIN ? base::Result<void>() : base::Result<void>(socket.error());
    }
    if (callers_.size() >= static_cast<std::size_t>(own_.size) + kMostStrangers) {
      CountStranger(callers_.front().who());
      callers_.erase(callers_.begin());
    }
    callers_.emplace_back(*std::move(socket), -1, own_);
  }
}

void MeetingDoor::CountStranger(const SocketPeer& who) {
  ++strangers_;
  last_stranger_ = who;
}

void MeetingDoor::WatchIn(std::vector<pollfd>& watched) const {
  for (const Introduction& caller : callers_) watched.push_back({caller.socket(), POLLIN, 0});
  watched.push_back({listener_.get(), POLLIN, 0});
}

bool MeetingDoor::HearCaller(Introduction& caller, const std::vector<bool>* unwanted) {
  while (true) {
    switch (caller.Hear(key_, group_)) {
      case Introduction::Progress::kWaiting:
        return false;
      case Introduction::Progress::kGreeted: {
        const std::int32_t rank = caller.theirs().rank;
        const bool known = unwanted != nullptr && rank >= 0 && rank < own_.size;
        if (known && (*unwanted)[static_cast<std::size_t>(rank)]) break;
        caller.Answer(key_, group_);
        continue;
      }
      case Introduction::Progress::kProven:
        return true;
      case Introduction::Progress::kStranger:
        CountStranger(caller.who());
        break;
      case Introduction::Progress::kEnded:
        // A listener of the meeting before, or somebody who died: who belongs here will be called or call again.
        break;
    }
    caller.TakeSocket();
    return false;
  }
}

base::Result<std::vector<Introduction>> MeetingDoor::Hear(std::span<const pollfd> watched,
                                                          const std::vector<bool>* unwanted) {
  std::vector<Introduction> proven;
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    if (watched[i].revents != 0 && HearCaller(callers_[i], unwanted)) proven.push_back(std::move(callers_[i]));
  }
  std::erase_if(callers_, [](const Introduction& caller) { return caller.socket() < 0; });
  if (watched.back().revents != 0) {
    if (auto accepted = AcceptCallers(); !accepted) return accepted.error();
  }
  return proven;
}

void MeetingDoor::CloseToNewcomers() {
  closed_ = true;
  listener_.Reset();
  std::erase_if(callers_, [](const Introduction& caller) { return !caller.answered(); });
}

bool MeetingDoor::IsAwaited() const {
  return std::any_of(callers_.begin(), callers_.end(), [](const auto& caller) { return caller.answered(); });
}

void MeetingDoor::Close() {
  closed_ = true;
  listener_.Reset();
  callers_.clear();
}

}  // namespace fulldeck::collectives
