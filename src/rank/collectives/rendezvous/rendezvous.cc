#include "collectives/rendezvous/rendezvous.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "collectives/max_group_size.h"
#include "collectives/rendezvous/rendezvous_errors.h"
#include "collectives/rendezvous/rendezvous_handshake.h"
#include "collectives/rendezvous/rendezvous_listener.h"
#include "collectives/rendezvous/rendezvous_messages.h"
#include "collectives/rendezvous/rendezvous_socket.h"
#include "fulldeck/collectives.h"

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;

// How long rank 0 may take to report whether the group is established, after this member has found a failure.
constexpr base::Duration kVerdictTimeout = 2s;
// How long a member that found a failure stays to notify latecomers.
constexpr base::Duration kLatecomerGrace = 1s;

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

HelloMessage HelloOf(const RendezvousRequest& request) {
  HelloMessage hello;
  hello.version = request.version != 0 ? request.version : kRendezvousVersion;
  hello.rank = request.rank;
  hello.size = request.size;
  return hello;
}

// One member's side of one rendezvous.
//
// Invariant: either all members succeed or none does, unless a member dies or rank 0 stays silent. A member reports
// ready only after it has mapped the memory of all and sent its own to all; until then its failure prevents success,
// because rank 0 waits for all. From then on (sent_ready_) only rank 0 decides: a failure found later is sent to rank 0
// and takes effect only if rank 0 confirms it, dies, or stays silent for kVerdictTimeout. Rank 0 declares the group
// established in one step, when all are ready and it has no failure.
class RendezvousProtocol {
 public:
  explicit RendezvousProtocol(RendezvousRequest request)
      : request_(std::move(request)),
        group_(base::Printable(request_.name.substr(0, 80))),
        began_(Now()),
        listener_(request_.key, request_.name, HelloOf(request_), request_.deadline),
        members_(static_cast<std::size_t>(request_.size)) {}
  RendezvousOutcome Run();

 private:
  struct Member {
    base::UniqueFd socket;
    SocketPeer who;
    std::shared_ptr<const WatchedProcess> process;
    bool here = false;  // has proved that it is this member
    bool ended = false;
    bool notified = false;  // this member's memory was sent to it
    bool ready = false;
    bool keep_connection = false;
    MemberInfo info;
    std::shared_ptr<SharedMemory> segment;
  };

  bool is_leader() const { return request_.rank == 0; }
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  std::vector<bool> Here() const;
  // A member that has reported ready lets rank 0 decide.
  bool AwaitsVerdictOfRankZero() const { return sent_ready_ && !is_leader(); }

  void RunOnce();
  void WaitForEvents();
  void HandleListener(std::span<const pollfd> watched);
  void AddMember(Handshake& handshake);
  void SendMemory(Member& to);
  void ReceiveFromMember(int rank);
  void HandlePacket(int rank, ReceivedPacket packet);
  void MapMemory(int rank, const MemberMessage& message, ReceivedPacket packet);
  void SendReady();
  void OnDeadline();
  void Fail(int code, std::string text);
  void FailBySystem(const base::Error& error);
  RendezvousOutcome Succeed();
  RendezvousOutcome Leave();
  void NotifyLatecomers();

  RendezvousRequest request_;
  std::string group_;  // the name, printable
  base::TimePoint began_;
  RendezvousListener listener_;
  std::vector<Member> members_;  // by rank; this member's own entry stays empty
  std::shared_ptr<SharedMemory> control_;
  bool sent_ready_ = false;
  bool established_ = false;
  std::optional<RendezvousFailure> failure_;
  bool failure_received_ = false;                       // failure_ came from another member
  std::optional<RendezvousFailure> suspected_failure_;  // reported to rank 0 after this member was ready
  base::TimePoint verdict_deadline_;
};

std::vector<bool> RendezvousProtocol::Here() const {
  std::vector<bool> here;
  for (const Member& each : members_) here.push_back(each.here);
  return here;
}

void RendezvousProtocol::Fail(int code, std::string text) {
  if (failure_) return;
  if (!AwaitsVerdictOfRankZero()) {
    failure_ = RendezvousFailure{code, std::move(text)};
  } else if (!suspected_failure_) {
    // Rank 0 may have declared the group established already, and others may have proceeded.
    SendPacket(member(0).socket.get(), EncodeFailure(code, text));
    suspected_failure_ = RendezvousFailure{code, std::move(text)};
    verdict_deadline_ = Now() + kVerdictTimeout;
  }
}

void RendezvousProtocol::FailBySystem(const base::Error& error) {
  Fail(FULLDECK_ERROR_SYSTEM, "group \"" + group_ + "\": rank " + std::to_string(request_.rank) + " " + error.message);
}

void RendezvousProtocol::AddMember(Handshake& handshake) {
  const HelloMessage& peer_hello = handshake.peer_hello();
  const SocketPeer who = handshake.who();
  const HelloMessage own = HelloOf(request_);
  const MemberClaim me{own.rank, getpid(), own.version, geteuid(), own.size};
  const MemberClaim other{peer_hello.rank, who.pid, peer_hello.version, who.uid, peer_hello.size};
  if (failure_) {
    // Sent below.
  } else if (peer_hello.version != own.version) {
    Fail(FULLDECK_ERROR_STRANGER, VersionMismatch(group_, me, other));
  } else if (who.uid != geteuid()) {
    Fail(FULLDECK_ERROR_STRANGER, UserMismatch(group_, me, other));
  } else if (peer_hello.size != own.size) {
    Fail(FULLDECK_ERROR_STRANGER, SizeMismatch(group_, me, other));
  } else if (peer_hello.rank == own.rank) {
    Fail(FULLDECK_ERROR_STRANGER, DuplicateRank(group_, own.rank, getpid(), who.pid));
  } else if (handshake.called() >= 0 ? peer_hello.rank != handshake.called()
                                     : peer_hello.rank < own.rank || peer_hello.rank >= own.size) {
    return listener_.CountUnauthenticated(who);
  } else if (member(peer_hello.rank).here) {
    // It may have left a moment ago, and be the same process arriving for the next rendezvous: see whether its
    // connection has ended.
    ReceiveFromMember(peer_hello.rank);
    if (failure_) return;
    Fail(FULLDECK_ERROR_STRANGER, DuplicateRank(group_, peer_hello.rank, member(peer_hello.rank).who.pid, who.pid));
  }
  if (failure_) {
    SendPacket(handshake.socket(), EncodeFailure(failure_->code, failure_->text));
    if (peer_hello.rank >= 0 && peer_hello.rank < own.size) member(peer_hello.rank).here = true;
    return;
  }
  Member& newcomer = member(peer_hello.rank);
  newcomer.here = true;
  newcomer.who = who;
  newcomer.socket = handshake.TakeSocket();
  // The memory message, which follows on the same connection, proves that the peer was still alive here, so the pid was
  // its own.
  if (request_.use_pidfd && who.pid != getpid()) newcomer.process = WatchProcess(who.pid);
  SendMemory(newcomer);
}

void RendezvousProtocol::SendMemory(Member& to) {
  MemberMessage message;
  message.keep_connection = to.who.pid != getpid() && !to.process ? 1 : 0;
  message.control_bytes = request_.control_bytes;
  message.segment_bytes = request_.info.segment_bytes;
  message.node = request_.info.node;
  std::vector<int> descriptors{request_.segment->descriptor()};
  if (is_leader()) descriptors.push_back(request_.control->descriptor());
  // The kernel limits the descriptors in flight per user: with many members, some sends have to be retried a little
  // later.
  to.notified = SendPacket(to.socket.get(), Encode(message), descriptors);
}

void RendezvousProtocol::ReceiveFromMember(int rank) {
  while (!failure_ && !established_ && !member(rank).ended) {
    // Descriptors are accepted only with the message that they belong to.
    const std::size_t expected = member(rank).segment ? 0 : rank == 0 ? 2 : 1;
    ReceivedPacket packet = ReceivePacket(member(rank).socket.get(), kMaxRendezvousPacket, expected);
    if (packet.kind == ReceivedPacket::Kind::kNothingYet) return;
    if (packet.kind == ReceivedPacket::Kind::kPacket) {
      HandlePacket(rank, std::move(packet));
      continue;
    }
    member(rank).ended = true;
    const std::string text = MemberDied(group_, rank, member(rank).who.pid);
    // After the end of rank 0, no one else can decide. Other members may have hung up because they already know that
    // the group is established.
    if (rank == 0) failure_ = RendezvousFailure{FULLDECK_ERROR_PEER_LOST, text};
    Fail(FULLDECK_ERROR_PEER_LOST, text);
  }
}

void RendezvousProtocol::HandlePacket(int rank, ReceivedPacket packet) {
  if (auto failure = DecodeFailure(packet.bytes)) {
    failure_received_ = true;
    // A failure from rank 0 is the decision.
    if (rank == 0) failure_ = RendezvousFailure{failure->code, failure->text};
    Fail(failure->code, std::move(failure->text));
  } else if (const auto memory = Decode<MemberMessage>(packet.bytes); memory && !member(rank).segment) {
    MapMemory(rank, *memory, std::move(packet));
  } else if (Decode<ReadyMessage>(packet.bytes) && is_leader() && member(rank).segment) {
    member(rank).ready = true;
  } else if (Decode<ReadyMessage>(packet.bytes) && AwaitsVerdictOfRankZero() && rank == 0) {
    established_ = true;
  } else {
    Fail(FULLDECK_ERROR_STRANGER, "group \"" + group_ + "\": rank " + std::to_string(rank) +
                                      " sent something to rank " + std::to_string(request_.rank) +
                                      " that is no part of a meeting");
  }
}

void RendezvousProtocol::MapMemory(int rank, const MemberMessage& message, ReceivedPacket packet) {
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
  sender.info = {message.segment_bytes, message.node};
  sender.keep_connection = message.keep_connection != 0;
}

void RendezvousProtocol::SendReady() {
  // In this order: a member that learns that the group is established may start the next rendezvous of the same name
  // immediately.
  listener_.Close();
  sent_ready_ = true;
  if (!is_leader()) SendPacket(member(0).socket.get(), Encode(ReadyMessage{}));
}

void RendezvousProtocol::HandleListener(std::span<const pollfd> watched) {
  const std::vector<bool> notified = Here();
  auto newcomers = listener_.Receive(watched, failure_ ? &notified : nullptr);
  if (!newcomers) {
    FailBySystem(newcomers.error());
    return listener_.Close();
  }
  for (Handshake& newcomer : *newcomers) AddMember(newcomer);
}

void RendezvousProtocol::WaitForEvents() {
  const bool leaving = failure_.has_value();
  std::vector<pollfd> watched;
  for (const Member& each : members_) watched.push_back({each.ended || leaving ? -1 : each.socket.get(), POLLIN, 0});
  listener_.AddPollFds(watched);
  base::TimePoint until = suspected_failure_ ? verdict_deadline_ : request_.deadline;
  if (leaving) until = Now() + 10ms;
  if (!sent_ready_) {
    until = std::min(until, listener_.NextDue(Here()));
    for (const Member& each : members_) {
      if (each.here && !each.notified) until = std::min<base::TimePoint>(until, Now() + 5ms);
    }
  }
  const auto pause = std::max<base::Duration>(until - Now(), 0ns);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(pause);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds.count());
  time.tv_nsec = static_cast<long>((pause - seconds).count());
  if (ppoll(watched.data(), watched.size(), &time, nullptr) <= 0) return;

  // Members first: what they sent takes precedence over connections that were made later.
  for (int rank = 0; rank < request_.size; ++rank) {
    if (watched[static_cast<std::size_t>(rank)].revents != 0) ReceiveFromMember(rank);
  }
  if (leaving || !failure_) HandleListener(std::span(watched).subspan(members_.size()));
}

void RendezvousProtocol::OnDeadline() {
  RendezvousReport report;
  report.group = group_;
  report.rank = request_.rank;
  report.size = request_.size;
  report.waited = Now() - began_;
  for (int rank = 0; rank < request_.size; ++rank) {
    if (rank == request_.rank) continue;
    const Member& other = member(rank);
    const bool is_waited_for = is_leader() && sent_ready_  ? !other.ready
                               : AwaitsVerdictOfRankZero() ? rank == 0
                                                           : !other.segment;
    if (const auto pid = listener_.UnresponsiveAt(rank)) {
      report.unresponsive.push_back({rank, DescribeProcess(*pid)});
    } else if (!other.here) {
      report.absent.push_back(rank);
    } else if (is_waited_for) {
      report.not_ready.push_back({rank, DescribeProcess(other.who.pid)});
    }
  }
  report.address_taken_by = listener_.address_taken_by();
  report.unauthenticated_peers = listener_.unauthenticated_peers();
  report.last_unauthenticated = listener_.last_unauthenticated().pid;
  report.last_unauthenticated_uid = listener_.last_unauthenticated().uid;
  Fail(FULLDECK_ERROR_TIMEOUT, RendezvousTimedOut(report));
}

void RendezvousProtocol::RunOnce() {
  if (!sent_ready_) {
    if (const auto tended = listener_.Advance(Here()); !tended) return FailBySystem(tended.error());
    int missing = 0;
    for (Member& each : members_) {
      if (each.here && !each.notified) SendMemory(each);
      missing += !each.segment || !each.notified ? 1 : 0;
    }
    if (missing == 1) SendReady();  // only its own entry is left
  }
  if (is_leader() && sent_ready_ && std::count_if(members_.begin(), members_.end(), [](const Member& each) {
                                      return each.ready;
                                    }) == request_.size - 1) {
    for (const Member& each : members_) SendPacket(each.socket.get(), Encode(ReadyMessage{}));
    established_ = true;
  } else if (suspected_failure_ && Now() >= verdict_deadline_) {
    failure_ = suspected_failure_;
  } else if (!suspected_failure_ && Now() >= request_.deadline) {
    OnDeadline();
  } else {
    WaitForEvents();
  }
}

RendezvousOutcome RendezvousProtocol::Run() {
  if (request_.cannot_join) {
    failure_ = request_.cannot_join;
    // Without its address, the others could not be notified.
    (void)listener_.Advance(Here());
    return Leave();
  }
  established_ = request_.size == 1;
  while (!failure_ && !established_) RunOnce();
  return established_ ? Succeed() : Leave();
}

RendezvousOutcome RendezvousProtocol::Succeed() {
  std::vector<std::shared_ptr<SharedMemory>> segments;
  std::vector<MemberInfo> infos;
  std::vector<PeerWatch::Peer> peers;
  for (int rank = 0; rank < request_.size; ++rank) {
    Member& each = member(rank);
    const bool is_me = rank == request_.rank;
    segments.push_back(is_me ? request_.segment : std::move(each.segment));
    infos.push_back(is_me ? request_.info : each.info);
    if (is_me) continue;
    peers.push_back({rank, each.who.pid, std::move(each.socket), std::move(each.process), each.keep_connection});
  }
  request_.segment->CloseDescriptor();
  if (is_leader()) {
    control_ = std::move(request_.control);
    control_->CloseDescriptor();
  }
  RendezvousOutcome outcome;
  outcome.rendezvous = std::make_unique<Rendezvous>(Rendezvous{
      std::move(control_), std::move(segments), std::move(infos), PeerWatch(std::move(peers), request_.use_pidfd)});
  return outcome;
}

void RendezvousProtocol::NotifyLatecomers() {
  const base::TimePoint most = Now() + kLatecomerGrace;
  // A member that received the failure does not repeat it: a failure must not spread from one rendezvous of a name to
  // the next.
  if (!failure_received_ && failure_->code != FULLDECK_ERROR_TIMEOUT) {
    const base::TimePoint until = std::min<base::TimePoint>(most, request_.deadline);
    const auto is_absent = [](const Member& each) { return !each.here; };
    while (listener_.is_listening() && Now() < until &&
           std::count_if(members_.begin(), members_.end(), is_absent) > 1) {
      if (!listener_.Advance(Here())) break;
      WaitForEvents();
    }
  }
  listener_.StopAccepting();
  while (listener_.HasPending() && Now() < most) WaitForEvents();
}

RendezvousOutcome RendezvousProtocol::Leave() {
  for (Member& each : members_) {
    if (each.here && !each.ended) SendPacket(each.socket.get(), EncodeFailure(failure_->code, failure_->text));
    HangUp(each.socket);
  }
  NotifyLatecomers();
  listener_.Close();
  return {nullptr, *std::move(failure_)};
}

}  // namespace

RendezvousOutcome RunRendezvous(RendezvousRequest request) {
  if (request.size < 1 || request.size > kMaxGroupSize || request.rank < 0 || request.rank >= request.size) {
    return {nullptr,
            {FULLDECK_ERROR_ARGUMENT, "rank " + std::to_string(request.rank) + " of " + std::to_string(request.size) +
                                          " is impossible: a group has 1 to " + std::to_string(kMaxGroupSize) +
                                          " members, and the first is rank 0"}};
  }
  if (!request.cannot_join) {
    FULLDECK_CHECK(request.segment && (request.size == 1 || request.segment->descriptor() >= 0));
    FULLDECK_CHECK((request.control != nullptr) == (request.rank == 0));
  }
  return RendezvousProtocol(std::move(request)).Run();
}

}  // namespace fulldeck::collectives
