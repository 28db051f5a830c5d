#include "nodes/node_group.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "net/host_address.h"
#include "net/port_owner.h"
#include "nodes/coordinator.h"
#include "nodes/node_connector.h"
#include "nodes/node_loss.h"
#include "nodes/node_member.h"
#include "nodes/node_role.h"
#include "nodes/node_roster.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kFirstPause = 50ms;
constexpr base::Duration kLongestPause = 1s;
constexpr int kMaxLocalRanks = 4096;

base::Result<void> CheckOptions(const NodeGroupOptions& options) {
  if (options.endpoint_host.empty()) {
    return base::Error{"several hosts need a place to meet: give --master-addr or --rdzv-endpoint HOST:PORT"};
  }
  if (options.endpoint_port < 1 || options.endpoint_port > 65535) {
    return base::Error{"the port " + std::to_string(options.endpoint_port) +
                       " of the meeting point is not one of 1–65535"};
  }
  if (options.min_nodes < 1 || options.max_nodes < options.min_nodes || options.max_nodes > kMaxNodes) {
    return base::Error{"--nnodes " + std::to_string(options.min_nodes) + ":" + std::to_string(options.max_nodes) +
                       " cannot be: at least 1, at most " + std::to_string(kMaxNodes) + ", the smaller number first"};
  }
  if (options.node_rank && (*options.node_rank < 0 || *options.node_rank >= options.max_nodes)) {
    return base::Error{"--node-rank " + std::to_string(*options.node_rank) + " cannot be with --nnodes " +
                       NodeRange(options.min_nodes, options.max_nodes) + ": hosts are numbered from 0"};
  }
  if (options.is_host && options.node_rank && *options.is_host != (*options.node_rank == 0)) {
    return base::Error{"--rdzv-conf is_host=" + std::to_string(*options.is_host ? 1 : 0) + " contradicts --node-rank " +
                       std::to_string(*options.node_rank) + ": host 0 gathers the others"};
  }
  if (options.local_ranks < 1 || options.local_ranks > kMaxLocalRanks) {
    return base::Error{std::to_string(options.local_ranks) + " ranks on one host cannot be: 1–" +
                       std::to_string(kMaxLocalRanks)};
  }
  return {};
}

// Whether a rendezvous endpoint that is written this way can mean a loopback address.
bool MayMeanLoopback(const std::string& host) {
  return host == "localhost" || host.ends_with(".localhost") || net::IsNumericAddress(host);
}

}  // namespace

// Until this launcher has a role, it looks for one: it binds the rendezvous endpoint if it may, otherwise it connects
// there.
struct NodeGroup::Impl {
  Impl(base::EventLoop& loop, NodeGroupOptions options, NodeGroupEvents events)
      : context(loop, std::move(options), std::move(events)), retry(loop), report(loop), deadline(loop) {}

  base::Result<void> Begin();
  base::Result<void> CoordinateAtEndpoint();
  void StartSearch();
  void Search();
  void EndSearch();
  void CallNext();
  void OnOutcome(NodeConnector::Outcome outcome);
  void Retry();
  void Report();
  // Listens at `own`, an address of this node; on all interfaces if it is only the node's own name for itself.
  base::Result<void> CoordinateAt(const net::HostAddress& own);
  base::Result<void> CoordinateOnAllInterfaces(const std::string& why);
  base::Result<void> Coordinate(const net::HostAddress& listen_on, std::string address_for_others);
  std::string Endpoint() const;

  NodeGroupContext context;
  std::unique_ptr<NodeRole> role;
  std::unique_ptr<NodeConnector> call;
  std::vector<net::HostAddress> addresses;  // of this round of connection attempts
  std::size_t called = 0;                   // how many of them were tried
  base::Duration pause = kFirstPause;
  base::TimePoint search_began{};
  std::string error_text = "not tried yet";
  bool joined = false;
  base::LoopTimer retry;
  base::LoopTimer report;
  base::LoopTimer deadline;
};

std::string NodeGroup::Impl::Endpoint() const {
  const std::string host = base::Printable(context.options.endpoint_host);
  const std::string port = std::to_string(context.options.endpoint_port);
  return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

base::Result<void> NodeGroup::Impl::Begin() {
  if (auto checked = CheckOptions(context.options); !checked) return checked;
  if (!context.options.is_host.value_or(context.options.node_rank == 0)) {
    StartSearch();
    return {};
  }
  auto begun = CoordinateAtEndpoint();
  if (begun || begun.error().system_error != EADDRINUSE) return begun;
  const auto owner = net::ListenerOnPort(context.options.endpoint_port);
  return base::Error{"port " + std::to_string(context.options.endpoint_port) + " of the meeting point " + Endpoint() +
                         " is taken" + (owner ? " by " + *owner : "") +
                         ": end that, or choose another port on all hosts",
                     EADDRINUSE};
}

base::Result<void> NodeGroup::Impl::CoordinateAtEndpoint() {
  // This launcher must coordinate. Behind NAT the endpoint may be an address that this node does not have.
  const auto resolved = net::ResolveHost(context.options.endpoint_host, context.options.endpoint_port);
  if (!resolved) return CoordinateOnAllInterfaces(resolved.error().message);
  const auto own = std::find_if(resolved->begin(), resolved->end(), [](const auto& a) { return a.IsOfThisHost(); });
  if (own == resolved->end()) {
    return CoordinateOnAllInterfaces(resolved->front().Numeric() + " is not an address of this host");
  }
  auto begun = CoordinateAt(*own);
  if (begun || begun.error().system_error != EADDRNOTAVAIL) return begun;
  return CoordinateOnAllInterfaces(own->Numeric() + " cannot be listened on here");
}

base::Result<void> NodeGroup::Impl::CoordinateAt(const net::HostAddress& own) {
  // Many systems map their own name to a loopback address; other nodes resolve it differently.
  if (own.IsLoopback() && !MayMeanLoopback(context.options.endpoint_host)) {
    return CoordinateOnAllInterfaces(base::Printable(context.options.endpoint_host) + " means " + own.Numeric() +
                                     " on this host");
  }
  return Coordinate(own, own.Numeric());
}

base::Result<void> NodeGroup::Impl::CoordinateOnAllInterfaces(const std::string& why) {
  const net::HostAddress any = net::HostAddress::Any(context.options.endpoint_port);
  auto begun = Coordinate(any, "");
  if (begun)
    context.LogLine("listening on all interfaces of this host for the meeting point " + Endpoint() + ": " + why);
  return begun;
}

base::Result<void> NodeGroup::Impl::Coordinate(const net::HostAddress& listen_on, std::string address_for_others) {
  auto listener = net::ListenOn(listen_on);
  if (!listener) return listener.error();
  if (context.options.local_addr) {
    const auto named = net::ResolveHost(*context.options.local_addr, listen_on.port());
    if (!named) return base::Error{"--local-addr: " + named.error().message};
    address_for_others = named->front().Numeric();
  }
  EndSearch();
  context.LogLine("this launcher coordinates the run at " + Endpoint() + " and waits for " +
                  NodeRange(context.options.min_nodes, context.options.max_nodes) + " hosts");
  role = std::make_unique<Coordinator>(context, std::move(*listener), std::move(address_for_others));
  return {};
}

void NodeGroup::Impl::StartSearch() {
  search_began = context.Now();
  pause = kFirstPause;
  report.Set(context.options.report_interval, [this] { Report(); });
  deadline.Set(context.options.join_timeout, [this] {
    EndSearch();
    context.GaveUp("no coordinator answered at " + Endpoint() + " within " +
                   base::FormatTimeout(context.options.join_timeout) + "; last: " + error_text +
                   (context.options.node_rank ? ". The launcher with --node-rank 0 must run there" : ""));
  });
  Search();
}

void NodeGroup::Impl::EndSearch() {
  call.reset();
  retry.Cancel();
  report.Cancel();
  deadline.Cancel();
}

void NodeGroup::Impl::Search() {
  auto resolved = net::ResolveHost(context.options.endpoint_host, context.options.endpoint_port);
  if (!resolved) {
    error_text = resolved.error().message;
    return Retry();
  }
  const auto own = std::find_if(resolved->begin(), resolved->end(), [](const auto& a) { return a.IsOfThisHost(); });
  const bool may_coordinate = !context.options.node_rank && !context.options.is_host;
  if (may_coordinate && own != resolved->end()) {
    const auto begun = CoordinateAt(*own);
    if (begun) return;
    // If the port is in use, connecting shows whether another launcher of this node or another program has it.
    if (begun.error().system_error != EADDRINUSE) {
      error_text = begun.error().message;
      return Retry();
    }
  }
  addresses = std::move(*resolved);
  called = 0;
  CallNext();
}

void NodeGroup::Impl::CallNext() {
  const net::HostAddress address = addresses[called++];
  call = std::make_unique<NodeConnector>(context, address,
                                         [this](NodeConnector::Outcome outcome) { OnOutcome(std::move(outcome)); });
}

void NodeGroup::Impl::OnOutcome(NodeConnector::Outcome outcome) {
  if (outcome.link) {
    EndSearch();
    role = std::make_unique<NodeMember>(context, std::move(outcome.link), outcome.joined,
                                        [this](const std::string& reason) {
                                          context.LogLine(reason + ". Waiting for it to come back");
                                          error_text = reason;
                                          role.reset();
                                          StartSearch();
                                        });
    return;
  }
  error_text = outcome.error_text;
  if (outcome.is_permanent) {
    EndSearch();
    return context.GaveUp(error_text);
  }
  if (called < addresses.size()) return CallNext();
  Retry();
}

void NodeGroup::Impl::Retry() {
  retry.Set(pause, [this] {
    call.reset();
    Search();
  });
  pause = std::min(2 * pause, kLongestPause);
}

void NodeGroup::Impl::Report() {
  report.Set(context.options.report_interval, [this] { Report(); });
  context.LogLine("waiting for the coordinator at " + Endpoint() + " for " +
                  base::FormatTimeout(context.Now() - search_began) + ": " + error_text);
}

NodeGroup::NodeGroup(base::EventLoop& loop, NodeGroupOptions options, NodeGroupEvents events)
    : impl_(std::make_unique<Impl>(loop, std::move(options), std::move(events))) {}

NodeGroup::~NodeGroup() = default;

base::Result<void> NodeGroup::Join() {
  FULLDECK_CHECK(!std::exchange(impl_->joined, true));
  return impl_->Begin();
}

void NodeGroup::Succeeded() {
  impl_->context.calls.Post([state = impl_.get()] {
    if (state->role) state->role->Succeeded();
  });
}

void NodeGroup::Failed(const NodeFailure& failure) {
  NodeFailure seen = failure;
  if (seen.seen_at == base::TimePoint{}) seen.seen_at = impl_->context.Now();
  impl_->context.calls.Post([state = impl_.get(), seen] {
    if (state->role) return state->role->Failed(seen);
    // Still looking for the other nodes.
    state->EndSearch();
    NodeFailure own = seen;
    own.host_name = base::Printable(state->context.options.host_name);
    state->context.Finished(own);
  });
}

void NodeGroup::Stopped() {
  impl_->context.calls.Post([state = impl_.get()] {
    if (state->role) state->role->Stopped();
  });
}

void NodeGroup::SetProgress(std::uint64_t best_step) {
  impl_->context.best_step = std::max(impl_->context.best_step, best_step);
}

}  // namespace fulldeck::nodes
