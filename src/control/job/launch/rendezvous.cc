#include <fmt/format.h>

#include "job/launch/launch_flags.h"

namespace fulldeck::job {
namespace {

using base::Error;
using base::Result;

constexpr int kStaticPort = 29500;
constexpr int kC10dPort = 29400;

void ResolveSingleNode(LaunchFlags& flags) {
  const RendezvousRequest& requested = flags.requested;
  flags.rendezvous = Rendezvous::kNone;
  flags.endpoint_port.reset();
  flags.endpoint_host = requested.master_addr.value_or(flags.local_addr.value_or("127.0.0.1"));
  flags.master_port = requested.master_port;
  // torchrun's static endpoint is where rank 0's store listens. The c10d endpoint is only for the rendezvous, which a
  // single node does not need.
  const bool is_static = requested.backend.value_or(Rendezvous::kStatic) == Rendezvous::kStatic && !flags.standalone;
  if (is_static && requested.rdzv_host) {
    flags.endpoint_host = *requested.rdzv_host;
    if (requested.rdzv_port) flags.master_port = requested.rdzv_port;
  }
  if (flags.master_port == 0) flags.master_port.reset();
}

Result<void> RefuseTwoEndpoints(const RendezvousRequest& requested, bool ports_too) {
  if (!requested.rdzv_host) return {};
  if (requested.master_addr && *requested.master_addr != *requested.rdzv_host) {
    return Error{fmt::format("--rdzv-endpoint {} and --master-addr {} name two meeting points: give one",
                             *requested.rdzv_host, *requested.master_addr)};
  }
  if (ports_too && requested.rdzv_port && requested.master_port && *requested.rdzv_port != *requested.master_port) {
    return Error{fmt::format("port {} of --rdzv-endpoint and --master-port {} contradict each other: give one",
                             *requested.rdzv_port, *requested.master_port)};
  }
  return {};
}

Result<void> ResolveMultiNode(LaunchFlags& flags) {
  const RendezvousRequest& requested = flags.requested;
  flags.rendezvous = requested.backend.value_or(Rendezvous::kStatic);
  const bool is_static = flags.rendezvous == Rendezvous::kStatic;
  flags.master_port.reset();
  flags.endpoint_host = requested.rdzv_host.value_or(requested.master_addr.value_or(""));
  std::optional<int> port = requested.rdzv_host ? requested.rdzv_port : std::nullopt;
  if (!port && (is_static || !requested.rdzv_host)) port = requested.master_port;
  flags.endpoint_port = port.value_or(is_static ? kStaticPort : kC10dPort);
  // With c10d, the rendezvous endpoint and rank 0's store are separate, and both may be given.
  if (!is_static && requested.rdzv_host && requested.master_port != flags.endpoint_port)
    flags.master_port = requested.master_port;
  if (flags.master_port == 0) flags.master_port.reset();
  if (flags.endpoint_port == 0) {
    return Error{
        "port 0 means any free port, and every host would take another one: name the port where the hosts meet"};
  }
  if (is_static && flags.min_nodes != flags.max_nodes) {
    return Error{
        fmt::format("--nnodes {}:{} needs --rdzv-backend c10d: with static every host has its number and all must come",
                    flags.min_nodes, flags.max_nodes)};
  }
  if (is_static && flags.is_host) {
    return Error{
        "--rdzv-conf is_host belongs to --rdzv-backend c10d; with static the host with --node-rank 0 gathers "
        "the others"};
  }
  if (flags.is_host && flags.node_rank && *flags.is_host != (*flags.node_rank == 0)) {
    return Error{fmt::format("--rdzv-conf is_host={} contradicts --node-rank {}: host 0 gathers the others",
                             *flags.is_host ? 1 : 0, *flags.node_rank)};
  }
  if (flags.min_nodes != flags.max_nodes && flags.node_rank) {
    return Error{
        fmt::format("--node-rank cannot be kept with --nnodes {}:{}: the hosts are numbered as they come; leave "
                    "--node-rank (PET_NODE_RANK) out",
                    flags.min_nodes, flags.max_nodes)};
  }
  return RefuseTwoEndpoints(requested, is_static);
}

}  // namespace

Result<void> ResolveRendezvous(LaunchFlags& flags) {
  if (flags.max_nodes > 1) return ResolveMultiNode(flags);
  ResolveSingleNode(flags);
  const bool is_static =
      flags.requested.backend.value_or(Rendezvous::kStatic) == Rendezvous::kStatic && !flags.standalone;
  return is_static ? RefuseTwoEndpoints(flags.requested, true) : Result<void>();
}

Result<void> CheckComplete(const LaunchFlags& flags) {
  if (flags.node_rank && *flags.node_rank >= flags.max_nodes) {
    if (flags.max_nodes == 1) {
      return Error{fmt::format("--node-rank {} with one host: say how many there are with --nnodes, or leave it out",
                               *flags.node_rank)};
    }
    return Error{fmt::format("--node-rank {} with --nnodes {}: hosts are numbered from 0 to {}", *flags.node_rank,
                             flags.max_nodes, flags.max_nodes - 1)};
  }
  if (flags.rendezvous == Rendezvous::kNone) return {};
  if (flags.endpoint_host.empty()) {
    return Error{fmt::format(
        "{} hosts need a place to meet: --master-addr HOST with --node-rank K on each, or the same line on all with "
        "--rdzv-backend c10d --rdzv-endpoint HOST:PORT",
        flags.max_nodes)};
  }
  if (flags.rendezvous == Rendezvous::kStatic && !flags.node_rank) {
    return Error{
        fmt::format("which of the {} hosts is this? Give --node-rank 0 to {} (a different one on each host), or let "
                    "them be numbered "
                    "as they come with --rdzv-backend c10d --rdzv-endpoint {}:{}",
                    flags.max_nodes, flags.max_nodes - 1, flags.endpoint_host, *flags.endpoint_port)};
  }
  return {};
}

}  // namespace fulldeck::job
