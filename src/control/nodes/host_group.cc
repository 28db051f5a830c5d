#include "nodes/host_group.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "net/host_address.h"
#include "net/port_owner.h"
#include "nodes/host_call.h"
#include "nodes/host_coordinator.h"
#include "nodes/host_loss.h"
#include "nodes/host_member.h"
#include "nodes/host_role.h"
#include "nodes/host_roster.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kFirstPause = 50ms;
constexpr base::Duration kLongestPause = 1s;
constexpr int kMostLocalRanks = 4096;

base::Result<void> CheckOptions(const HostGroupOptions& options) {
  if (options.endpoint_host.empty()) {
    return base::Error{"several hosts need a place to meet: give --master-addr or --rdzv-endpoint HOST:PORT"};
  }
  if (options.endpoint_port < 1 || options.endpoint_port > 65535) {
    return base::Error{"the port " + std::to_string(options.endpoint_port) +
                       " of the meeting point is not one of 1–65535"};
  }
  if (options.min_hosts < 1 || options.max_hosts < options.min_hosts || options.max_hosts > kMostHosts) {
    return base::Error{"--nnodes " + std::to_string(options.min_hosts) + ":" + std::to_string(options.max_hosts) +
                       " cannot be: at least 1, at most " + std::to_string(kMostHosts) + ", the smaller number first"};
  }
  if (options.node_rank && (*options.node_rank < 0 || *options.node_rank >= options.max_hosts)) {
    return base::Error{"--node-rank " + std::to_string(*options.node_rank) + " cannot be with --nnodes " +
                       HostRange(options.min_hosts, options.max_hosts) + ": hosts are numbered from 0"};
  }
  if (options.is_host && options.node_rank && *options.is_host != (*options.node_rank == 0)) {
    return base::Error{"--rdzv-conf is_host=" + std::to_string(*options.is_host ? 1 : 0) + " contradicts --node-rank " +
                       std::to_string(*options.node_rank) + ": host 0 gathers the others"};
  }
  if (options.local_ranks < 1 || options.local_ranks > kMostLocalRanks) {
    return base::Error{std::to_string(options.local_ranks) + " ranks on one host cannot be: 1–" +
                       std::to_string(kMostLocalRanks)};
  }
  return {};
}

// Whether whoever writes this as the meeting point can mean a loopback address.
bool MayMeanLoopback(const std::string& host) {
  return host == "localhost" || host.ends_with(".localhost") || net::IsNumericAddress(host);
}

}  // namespace

// Before this launcher has a role it looks for one: it takes the meeting point if it may, else it calls there.
struct HostGroup::State {
  State(base::EventLoop& loop, HostGroupOptions options, HostGroupEvents events)
      : core(loop, std::move(options), std::move(events)), retry(loop), report(loop), deadline(loop) {}

  base::Result<void> Begin();
  base::Result<void> CoordinateAsTold();
  void SeekFromNow();
  void Seek();
  void EndSeeking();
  void CallNext();
  void OnOutcome(HostCall::Outcome outcome);
  void Retry();
  void Report();
  // Listens at `own`, an address of this host; on all interfaces where it is only what this host calls itself.
  base::Result<void> CoordinateAt(const net::HostAddress& own);
  base::Result<void> CoordinateEverywhere(const std::string& why);
  base::Result<void> Coordinate(const net::HostAddress& listen_on, std::string address_for_others);
  std::string Endpoint() const;

  HostGroupCore core;
  std::unique_ptr<HostRole> role;
  std::unique_ptr<HostCall> call;
  std::vector<net::HostAddress> addresses;  // of this round of calls
  std::size_t called = 0;                   // so many of them
  base::Duration pause = kFirstPause;
  base::TimePoint seeking_since{};
  std::string trouble = "not tried yet";
  bool joined = false;
  LoopTimer retry;
  LoopTimer report;
  LoopTimer deadline;
};

std::string HostGroup::State::Endpoint() const {
  const std::string host = base::Printable(core.options.endpoint_host);
  const std::string port = std::to_string(core.options.endpoint_port);
  return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

base::Result<void> HostGroup::State::Begin() {
  if (auto checked = CheckOptions(core.options); !checked) return checked;
  if (!core.options.is_host.value_or(core.options.node_rank == 0)) {
    SeekFromNow();
    return {};
  }
  auto begun = CoordinateAsTold();
  if (begun || begun.error().system_error != EADDRINUSE) return begun;
  const auto owner = net::ListenerOnPort(core.options.endpoint_port);
  return base::Error{"port " + std::to_string(core.options.endpoint_port) + " of the meeting point " + Endpoint() +
                         " is taken" + (owner ? " by " + *owner : "") +
                         ": end that, or choose another port on all hosts",
                     EADDRINUSE};
}

base::Result<void> HostGroup::State::CoordinateAsTold() {
  // Told to coordinate: behind address translation the meeting point is an address that this host does not know.
  const auto resolved = net::ResolveHost(core.options.endpoint_host, core.options.endpoint_port);
  if (!resolved) return CoordinateEverywhere(resolved.error().message);
  const auto own = std::find_if(resolved->begin(), resolved->end(), [](const auto& a) { return a.IsOfThisHost(); });
  if (own == resolved->end()) {
    return CoordinateEverywhere(resolved->front().Numeric() + " is not an address of this host");
  }
  auto begun = CoordinateAt(*own);
  if (begun || begun.error().system_error != EADDRNOTAVAIL) return begun;
  return CoordinateEverywhere(own->Numeric() + " cannot be listened on here");
}

base::Result<void> HostGroup::State::CoordinateAt(const net::HostAddress& own) {
  // Many systems give their own name a loopback address; the others know it by another one.
  if (own.IsLoopback() && !MayMeanLoopback(core.options.endpoint_host)) {
    return CoordinateEverywhere(base::Printable(core.options.endpoint_host) + " means " + own.Numeric() +
                                " on this host");
  }
  return Coordinate(own, own.Numeric());
}

base::Result<void> HostGroup::State::CoordinateEverywhere(const std::string& why) {
  const net::HostAddress any = net::HostAddress::Any(core.options.endpoint_port);
  auto begun = Coordinate(any, "");
  if (begun) core.Say("listening on all interfaces of this host for the meeting point " + Endpoint() + ": " + why);
  return begun;
}

base::Result<void> HostGroup::State::Coordinate(const net::HostAddress& listen_on, std::string address_for_others) {
  auto listener = net::ListenOn(listen_on);
  if (!listener) return listener.error();
  if (core.options.local_addr) {
    const auto named = net::ResolveHost(*core.options.local_addr, listen_on.port());
    if (!named) return base::Error{"--local-addr: " + named.error().message};
    address_for_others = named->front().Numeric();
  }
  EndSeeking();
  core.Say("this launcher coordinates the run at " + Endpoint() + " and waits for " +
           HostRange(core.options.min_hosts, core.options.max_hosts) + " hosts");
  role = std::make_unique<HostCoordinator>(core, std::move(*listener), std::move(address_for_others));
  return {};
}

void HostGroup::State::SeekFromNow() {
  seeking_since = core.Now();
  pause = kFirstPause;
  report.Set(core.options.report_interval, [this] { Report(); });
  deadline.Set(core.options.join_timeout, [this] {
    EndSeeking();
    core.GaveUp("no coordinator answered at " + Endpoint() + " within " + InSeconds(core.options.join_timeout) +
                "; last: " + trouble +
                (core.options.node_rank ? ". The launcher with --node-rank 0 must run there" : ""));
  });
  Seek();
}

void HostGroup::State::EndSeeking() {
  call.reset();
  retry.Cancel();
  report.Cancel();
  deadline.Cancel();
}

void HostGroup::State::Seek() {
  auto resolved = net::ResolveHost(core.options.endpoint_host, core.options.endpoint_port);
  if (!resolved) {
    trouble = resolved.error().message;
    return Retry();
  }
  const auto own = std::find_if(resolved->begin(), resolved->end(), [](const auto& a) { return a.IsOfThisHost(); });
  const bool may_coordinate = !core.options.node_rank && !core.options.is_host;
  if (may_coordinate && own != resolved->end()) {
    const auto begun = CoordinateAt(*own);
    if (begun) return;
    // Where the port is taken, by another launcher of this host or by something else, calling tells which.
    if (begun.error().system_error != EADDRINUSE) {
      trouble = begun.error().message;
      return Retry();
    }
  }
  addresses = std::move(*resolved);
  called = 0;
  CallNext();
}

void HostGroup::State::CallNext() {
  const net::HostAddress address = addresses[called++];
  call =
      std::make_unique<HostCall>(core, address, [this](HostCall::Outcome outcome) { OnOutcome(std::move(outcome)); });
}

void HostGroup::State::OnOutcome(HostCall::Outcome outcome) {
  if (outcome.link) {
    EndSeeking();
    role =
        std::make_unique<HostMember>(core, std::move(outcome.link), outcome.joined, [this](const std::string& reason) {
          core.Say(reason + ". Waiting for it to come back");
          trouble = reason;
          role.reset();
          SeekFromNow();
        });
    return;
  }
  trouble = outcome.trouble;
  if (outcome.hopeless) {
    EndSeeking();
    return core.GaveUp(trouble);
  }
  if (called < addresses.size()) return CallNext();
  Retry();
}

void HostGroup::State::Retry() {
  retry.Set(pause, [this] {
    call.reset();
    Seek();
  });
  pause = std::min(2 * pause, kLongestPause);
}

void HostGroup::State::Report() {
  report.Set(core.options.report_interval, [this] { Report(); });
  core.Say("waiting for the coordinator at " + Endpoint() + " for " + InSeconds(core.Now() - seeking_since) + ": " +
           trouble);
}

HostGroup::HostGroup(base::EventLoop& loop, HostGroupOptions options, HostGroupEvents events)
    : state_(std::make_unique<State>(loop, std::move(options), std::move(events))) {}

HostGroup::~HostGroup() = default;

base::Result<void> HostGroup::Join() {
  CHECK(!std::exchange(state_->joined, true));
  return state_->Begin();
}

void HostGroup::Succeeded() {
  state_->core.calls.Post([state = state_.get()] {
    if (state->role) state->role->Succeeded();
  });
}

void HostGroup::Failed(const HostFailure& failure) {
  HostFailure seen = failure;
  if (seen.seen_at == base::TimePoint{}) seen.seen_at = state_->core.Now();
  state_->core.calls.Post([state = state_.get(), seen] {
    if (state->role) return state->role->Failed(seen);
    // Still looking for the others.
    state->EndSeeking();
    HostFailure own = seen;
    own.host_name = base::Printable(state->core.options.host_name);
    state->core.Finished(own);
  });
}

void HostGroup::Stopped() {
  state_->core.calls.Post([state = state_.get()] {
    if (state->role) state->role->Stopped();
  });
}

void HostGroup::SetProgress(std::uint64_t best_step) {
  state_->core.best_step = std::max(state_->core.best_step, best_step);
}

}  // namespace fulldeck::nodes
