// Accepts connections for the coordinator, authenticates each peer by the token, and hands over those that
// authenticated and asked to join. All other connections are rejected: after a short time, after a few bytes, and
// with a limit on how many are open at the same time.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/files/unique_fd.h"
#include "net/message_link.h"
#include "nodes/node_messages.h"
#include "nodes/node_role.h"

namespace fulldeck::nodes {

// One thread: the loop's. The destructor closes the listener and all connections that were not handed over.
class NodeAcceptor {
 public:
  // The maximum number of connections in the handshake, and also the maximum number that are being rejected. Lower if
  // the process's limit of open files is low: both together use at most half of the descriptors, the rest stays for
  // the run.
  static constexpr std::size_t kMaxPending = 128;

  using Arrived = std::function<void(std::unique_ptr<net::MessageLink> link, const JoinMessage& join)>;

  NodeAcceptor(NodeGroupContext& context, base::UniqueFd listener, Arrived arrived);
  ~NodeAcceptor();
  NodeAcceptor(const NodeAcceptor&) = delete;
  NodeAcceptor& operator=(const NodeAcceptor&) = delete;

  // Connections that were not handed over.
  std::size_t connections() const { return pending_.size() + closing_.size(); }
  std::size_t max_pending() const { return max_pending_; }

  // Sends the reason, and closes.
  void Reject(std::unique_ptr<net::MessageLink> link, const std::string& reason);

 private:
  struct PendingPeer;
  void Watch();
  void Accept();
  void Admit(base::UniqueFd connected);
  void OnMessage(PendingPeer& peer, std::string_view text);
  void LogRejection(const PendingPeer& peer, const std::string& reason);
  std::unique_ptr<net::MessageLink> Forget(PendingPeer& peer);

  NodeGroupContext& context_;
  base::UniqueFd listener_;
  Arrived arrived_;
  base::EventLoop::Id watch_ = 0;
  base::LoopTimer pause_;
  std::list<std::unique_ptr<PendingPeer>> pending_;  // oldest first
  net::ClosingLinks closing_;
  std::size_t max_pending_;
  int logged_rejections_ = 0;
};

}  // namespace fulldeck::nodes
