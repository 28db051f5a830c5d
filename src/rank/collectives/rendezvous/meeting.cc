#include "collectives/rendezvous/meeting.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "collectives/largest_group.h"
#include "collectives/rendezvous/meeting_door.h"
#include "collectives/rendezvous/meeting_introduction.h"
#include "collectives/rendezvous/meeting_messages.h"
#include "collectives/rendezvous/meeting_socket.h"
#include "collectives/rendezvous/meeting_words.h"
#include "fulldeck/collectives.h"

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;

// How long rank 0 may take to say whether the group stands, once this member has found something wrong.
constexpr base::Duration kPatienceWithVerdict = 2s;
// How long a member that found something wrong stays to tell those who come later.
constexpr base::Duration kPatienceWithLatecomers = 1s;

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

Greeting GreetingOf(const MeetingRequest& request) {
  Greeting greeting;
  greeting.version = request.version != 0 ? request.version : kMeetingVersion;
  greeting.rank = request.rank;
  greeting.size = request.size;
  return greeting;
}

// One member's side of one meeting.
class Gathering {
 public:
  explicit Gathering(MeetingRequest request)
      : request_(std::move(request)),
        group_(base::Printable(request_.name.substr(0, 80))),
        began_(Now()),
        door_(request_.key, request_.name, GreetingOf(request_), request_.deadline),
        members_(static_cast<std::size_t>(request_.size)) {}
  MeetingOutcome Run();

 private:
  struct Member {
    base::UniqueFd socket;
    SocketPeer who;
    std::shared_ptr<const WatchedProcess> process;
    bool here = false;  // has proven that it is this member
    bool ended = false;
    bool told = false;  // has this one's memory on its way
    bool ready = false;
    bool keep_connection = false;
    MemberNote note;
    std::shared_ptr<SharedMemory> segment;
  };

  bool leads() const { return request_.rank == 0; }
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  std::vector<bool> Here() const;
  // Whoever has said that it is ready leaves it to rank 0 what becomes of the group.
  bool LeavesItToRankZero() const { return said_ready_ && !leads(); }

  void GoOn();
  void WaitForNews();
  void HearDoor(std::span<const pollfd> watched);
  void Welcome(Introduction& caller);
  void SendMemory(Member& to);
  void HearMember(int rank);
  void HearPacket(int rank, ReceivedPacket packet);
  void TakeMemory(int rank, const MemberMessage& message, ReceivedPacket packet);
  void SayReady();
  void OnDeadline();
  void Fail(int code, std::string text);
  void FailBySystem(const base::Error& error);
  MeetingOutcome Succeed();
  MeetingOutcome Leave();
  void TellLatecomers();

  MeetingRequest request_;
  std::string group_;  // the name, for people
  base::TimePoint began_;
  MeetingDoor door_;
  std::vector<Member> members_;  // by rank; this one's own entry stays empty
  std::shared_ptr<SharedMemory> control_;
  bool said_ready_ = false;
  bool stands_ = false;
  std::optional<MeetingFailure> failure_;
  bool was_told_ = false;                // of the failure, by another member
  std::optional<MeetingFailure> doubt_;  // what this member told rank 0 after it had said that it is ready
  base::TimePoint verdict_by_;
};

std::vector<bool> Gathering::Here() const {
  std::vector<bool> here;
  for (const Member& each : members_) here.push_back(each.here);
  return here;
}

void Gathering::Fail(int code, std::string text) {
  if (failure_) return;
  if (!LeavesItToRankZero()) {
    failure_ = MeetingFailure{code, std::move(text)};
  } else if (!doubt_) {
    // Rank 0 may have said already that the group stands, and others may have gone by that.
    SendPacket(member(0).socket.get(), EncodeFailure(code, text));
    doubt_ = MeetingFailure{code, std::move(text)};
    verdict_by_ = Now() + kPatienceWithVerdict;
  }
}

void Gathering::FailBySystem(const base::Error& error) {
  Fail(FULLDECK_ERROR_SYSTEM, "group \"" + group_ + "\": rank " + std::to_string(request_.rank) + " " + error.message);
}

void Gathering::Welcome(Introduction& caller) {
  const Greeting& theirs = caller.theirs();
  const SocketPeer who = caller.who();
  const Greeting own = GreetingOf(request_);
  const MemberClaim me{own.rank, getpid(), own.version, geteuid(), own.size};
  const MemberClaim other{theirs.rank, who.pid, theirs.version, who.uid, theirs.size};
  if (failure_) {
    // Told below.
  } else if (theirs.version != own.version) {
    Fail(FULLDECK_ERROR_STRANGER, TwoVersions(group_, me, other));
  } else if (who.uid != geteuid()) {
    Fail(FULLDECK_ERROR_STRANGER, TwoUsers(group_, me, other));
  } else if (theirs.size != own.size) {
    Fail(FULLDECK_ERROR_STRANGER, TwoSizes(group_, me, other));
  } else if (theirs.rank == own.rank) {
    Fail(FULLDECK_ERROR_STRANGER, TwoOfOneRank(group_, own.rank, getpid(), who.pid));
  } else if (caller.called() >= 0 ? theirs.rank != caller.called()
                                  : theirs.rank < own.rank || theirs.rank >= own.size) {
    return door_.CountStranger(who);
  } else if (member(theirs.rank).here) {
    // Did that one leave a moment ago, and comes again to the next meeting?
    HearMember(theirs.rank);
    if (failure_) return;
    Fail(FULLDECK_ERROR_STRANGER, TwoOfOneRank(group_, theirs.rank, member(theirs.rank).who.pid, who.pid));
  }
  if (failure_) {
    SendPacket(caller.socket(), EncodeFailure(failure_->code, failure_->text));
    if (theirs.rank >= 0 && theirs.rank < own.size) member(theirs.rank).here = true;
    return;
  }
  Member& newcomer = member(theirs.rank);
  newcomer.here = true;
  newcomer.who = who;
  newcomer.socket = caller.TakeSocket();
  // The memory that comes next over the connection proves that the pid was still its own here.
  if (request_.use_pidfd && who.pid != getpid()) newcomer.process = WatchProcess(who.pid);
  SendMemory(newcomer);
}

void Gathering::SendMemory(Member& to) {
  MemberMessage message;
  message.keep_connection = to.who.pid != getpid() && !to.process ? 1 : 0;
  message.control_bytes = request_.control_bytes;
  message.segment_bytes = request_.note.segment_bytes;
  message.node = request_.note.node;
  std::vector<int> descriptors{request_.segment->descriptor()};
  if (leads()) descriptors.push_back(request_.control->descriptor());
  // The kernel bounds how many descriptors of one user are under way: with many members some have to wait a little.
  to.told = SendPacket(to.socket.get(), Encode(message), descriptors);
}

void Gathering::HearMember(int rank) {
  while (!failure_ && !stands_ && !member(rank).ended) {
    // Descriptors are let in only with the message that they belong to.
    const std::size_t expected = member(rank).segment ? 0 : rank == 0 ? 2 : 1;
    ReceivedPacket packet = ReceivePacket(member(rank).socket.get(), kLongestMeetingPacket, expected);
    if (packet.kind == ReceivedPacket::Kind::kNothingYet) return;
    if (packet.kind == ReceivedPacket::Kind::kPacket) {
      HearPacket(rank, std::move(packet));
      continue;
    }
    member(rank).ended = true;
    const std::string text = MemberDied(group_, rank, member(rank).who.pid);
    // Nobody else's word counts after the end of rank 0. The others may also have hung up because they know already
    // that the group stands.
    if (rank == 0) failure_ = MeetingFailure{FULLDECK_ERROR_PEER_LOST, text};
    Fail(FULLDECK_ERROR_PEER_LOST, text);
  }
}

void Gathering::HearPacket(int rank, ReceivedPacket packet) {
  if (auto failure = DecodeFailure(packet.bytes)) {
    was_told_ = true;
    // The word of rank 0 is the verdict.
    if (rank == 0) failure_ = MeetingFailure{failure->code, failure->text};
    Fail(failure->code, std::move(failure->text));
  } else if (const auto memory = Decode<MemberMessage>(packet.bytes); memory && !member(rank).segment) {
    TakeMemory(rank, *memory, std::move(packet));
  } else if (Decode<ReadyMessage>(packet.bytes) && leads() && member(rank).segment) {
    member(rank).ready = true;
  } else if (Decode<ReadyMessage>(packet.bytes) && LeavesItToRankZero() && rank == 0) {
    stands_ = true;
  } else {
    Fail(FULLDECK_ERROR_STRANGER, "group \"" + group_ + "\": rank " + std::to_string(rank) +
                                      " sent something to rank " + std::to_string(request_.rank) +
                                      " that is no part of a meeting");
  }
}

void Gathering::TakeMemory(int rank, const MemberMessage& message, ReceivedPacket packet) {
  const std::string what = "group \"" + group_ + "\": rank " + std::to_string(request_.rank) +
                           " cannot use the memory of rank " + std::to_string(rank) + ": ";
  if (message.control_bytes != request_.control_bytes) {
    return Fail(FULLDECK_ERROR_STRANGER, what + "it reckons with " + std::to_string(message.control_bytes) +
                                             " bytes of common memory, this one with " +
                                             std::to_string(request_.control_bytes));
  }
  const std::size_t expected = rank == 0 ? 2 : 1;
  if (packet.descriptors.size() < expected) {
    return packet.descriptors_cut
               ? Fail(FULLDECK_ERROR_SYSTEM, what + "this process has too many open files (ulimit -n)")
               : Fail(FULLDECK_ERROR_STRANGER, what + "it sent none");
  }
  const auto open = [&](std::size_t index, std::uint64_t bytes) -> std::shared_ptr<SharedMemory> {
    auto memory = SharedMemory::Open(std::move(packet.descriptors[index]), bytes);
    if (memory) return *std::move(memory);
    const bool from_system = memory.error().system_error != 0;
    Fail(from_system ? FULLDECK_ERROR_SYSTEM : FULLDECK_ERROR_STRANGER, what + memory.error().message);
    return nullptr;
  };
  Member& sender = member(rank);
  if (rank == 0) control_ = open(1, request_.control_bytes);
  if (!failure_) sender.segment = open(0, message.segment_bytes);
  sender.note = {message.segment_bytes, message.node};
  sender.keep_connection = message.keep_connection != 0;
}

void Gathering::SayReady() {
  // In this order: whoever hears that the group stands may begin the next meeting of the same name at once.
  door_.Close();
  said_ready_ = true;
  if (!leads()) SendPacket(member(0).socket.get(), Encode(ReadyMessage{}));
}

void Gathering::HearDoor(std::span<const pollfd> watched) {
  const std::vector<bool> told = Here();
  auto newcomers = door_.Hear(watched, failure_ ? &told : nullptr);
  if (!newcomers) {
    FailBySystem(newcomers.error());
    return door_.Close();
  }
  for (Introduction& newcomer : *newcomers) Welcome(newcomer);
}

void Gathering::WaitForNews() {
  const bool leaving = failure_.has_value();
  std::vector<pollfd> watched;
  for (const Member& each : members_) watched.push_back({each.ended || leaving ? -1 : each.socket.get(), POLLIN, 0});
  door_.WatchIn(watched);
  base::TimePoint until = doubt_ ? verdict_by_ : request_.deadline;
  if (leaving) until = Now() + 10ms;
  if (!said_ready_) {
    until = std::min(until, door_.NextDue(Here()));
    for (const Member& each : members_) {
      if (each.here && !each.told) until = std::min<base::TimePoint>(until, Now() + 5ms);
    }
  }
  const auto pause = std::max<base::Duration>(until - Now(), 0ns);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(pause);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds.count());
  time.tv_nsec = static_cast<long>((pause - seconds).count());
  if (ppoll(watched.data(), watched.size(), &time, nullptr) <= 0) return;

  // Members first: what they said comes before what anybody does who connected later.
  for (int rank = 0; rank < request_.size; ++rank) {
    if (watched[static_cast<std::size_t>(rank)].revents != 0) HearMember(rank);
  }
  if (leaving || !failure_) HearDoor(std::span(watched).subspan(members_.size()));
}

void Gathering::OnDeadline() {
  MeetingAttendance attendance;
  attendance.group = group_;
  attendance.rank = request_.rank;
  attendance.size = request_.size;
  attendance.waited = Now() - began_;
  for (int rank = 0; rank < request_.size; ++rank) {
    if (rank == request_.rank) continue;
    const Member& other = member(rank);
    const bool is_waited_for = leads() && said_ready_ ? !other.ready
                               : LeavesItToRankZero() ? rank == 0
                                                      : !other.segment;
    if (const auto pid = door_.Unanswering(rank)) {
      attendance.unanswering.push_back({rank, DescribeProcess(*pid)});
    } else if (!other.here) {
      attendance.absent.push_back(rank);
    } else if (is_waited_for) {
      attendance.unready.push_back({rank, DescribeProcess(other.who.pid)});
    }
  }
  attendance.place_taken_by = door_.place_taken_by();
  attendance.strangers = door_.strangers();
  attendance.last_stranger = door_.last_stranger().pid;
  attendance.last_stranger_uid = door_.last_stranger().uid;
  Fail(FULLDECK_ERROR_TIMEOUT, MeetingTimedOut(attendance));
}

void Gathering::GoOn() {
  if (!said_ready_) {
    if (const auto tended = door_.Tend(Here()); !tended) return FailBySystem(tended.error());
    int missing = 0;
    for (Member& each : members_) {
      if (each.here && !each.told) SendMemory(each);
      missing += !each.segment || !each.told ? 1 : 0;
    }
    if (missing == 1) SayReady();  // its own entry
  }
  if (leads() && said_ready_ && std::count_if(members_.begin(), members_.end(), [](const Member& each) {
                                  return each.ready;
                                }) == request_.size - 1) {
    for (const Member& each : members_) SendPacket(each.socket.get(), Encode(ReadyMessage{}));
    stands_ = true;
  } else if (doubt_ && Now() >= verdict_by_) {
    failure_ = doubt_;
  } else if (!doubt_ && Now() >= request_.deadline) {
    OnDeadline();
  } else {
    WaitForNews();
  }
}

MeetingOutcome Gathering::Run() {
  if (request_.cannot_take_part) {
    failure_ = request_.cannot_take_part;
    // Without a place nobody could be told.
    (void)door_.Tend(Here());
    return Leave();
  }
  stands_ = request_.size == 1;
  while (!failure_ && !stands_) GoOn();
  return stands_ ? Succeed() : Leave();
}

MeetingOutcome Gathering::Succeed() {
  std::vector<std::shared_ptr<SharedMemory>> segments;
  std::vector<MemberNote> notes;
  std::vector<PeerWatch::Peer> peers;
  for (int rank = 0; rank < request_.size; ++rank) {
    Member& each = member(rank);
    const bool is_me = rank == request_.rank;
    segments.push_back(is_me ? request_.segment : std::move(each.segment));
    notes.push_back(is_me ? request_.note : each.note);
    if (is_me) continue;
    peers.push_back({rank, each.who.pid, std::move(each.socket), std::move(each.process), each.keep_connection});
  }
  request_.segment->CloseDescriptor();
  if (leads()) {
    control_ = std::move(request_.control);
    control_->CloseDescriptor();
  }
  MeetingOutcome outcome;
  outcome.meeting = std::make_unique<Meeting>(Meeting{std::move(control_), std::move(segments), std::move(notes),
                                                      PeerWatch(std::move(peers), request_.use_pidfd)});
  return outcome;
}

void Gathering::TellLatecomers() {
  const base::TimePoint most = Now() + kPatienceWithLatecomers;
  // Whoever was told does not: a failure must not wander from one meeting of a name into the next.
  if (!was_told_ && failure_->code != FULLDECK_ERROR_TIMEOUT) {
    const base::TimePoint until = std::min<base::TimePoint>(most, request_.deadline);
    const auto is_absent = [](const Member& each) { return !each.here; };
    while (door_.has_place() && Now() < until && std::count_if(members_.begin(), members_.end(), is_absent) > 1) {
      if (!door_.Tend(Here())) break;
      WaitForNews();
    }
  }
  door_.CloseToNewcomers();
  while (door_.IsAwaited() && Now() < most) WaitForNews();
}

MeetingOutcome Gathering::Leave() {
  for (Member& each : members_) {
    if (each.here && !each.ended) SendPacket(each.socket.get(), EncodeFailure(failure_->code, failure_->text));
    HangUp(each.socket);
  }
  TellLatecomers();
  door_.Close();
  return {nullptr, *std::move(failure_)};
}

}  // namespace

MeetingOutcome Meet(MeetingRequest request) {
  if (request.size < 1 || request.size > kLargestGroup || request.rank < 0 || request.rank >= request.size) {
    return {nullptr,
            {FULLDECK_ERROR_ARGUMENT, "rank " + std::to_string(request.rank) + " of " + std::to_string(request.size) +
                                          " is impossible: a group has 1 to " + std::to_string(kLargestGroup) +
                                          " members, and the first is rank 0"}};
  }
  if (!request.cannot_take_part) {
    CHECK(request.segment && (request.size == 1 || request.segment->descriptor() >= 0));
    CHECK((request.control != nullptr) == (request.rank == 0));
  }
  return Gathering(std::move(request)).Run();
}

}  // namespace fulldeck::collectives
