// The coordinator's door: accepts connections, asks each for the proof that it knows the token, and hands over those
// that gave it and asked to join. Everybody else is turned away: after a short time, after few bytes, and at most so
// many at once.
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

// One thread: the loop's. Destroying it closes the door and all connections that were not handed over.
class NodeAcceptor {
 public:
  // As many are served at once, and as many more are sent the reason why they are rejected; fewer where this
  // process may open few files: together they take at most half of those, and the other half stays for the run.
  static constexpr std::size_t kMaxPending = 128;

  using Arrived = std::function<void(std::unique_ptr<net::MessageLink> link, const JoinMessage& join)>;

  NodeAcceptor(NodeGroupContext& context, base::UniqueFd listener, Arrived arrived);
  ~NodeAcceptor();
  NodeAcceptor(const NodeAcceptor&) = delete;
  NodeAcceptor& operator=(const NodeAcceptor&) = delete;

  // Connections that were not handed over.
  std::size_t connections() const { return pending_.size() + closing_.size(); }
  std::size_t max_pending() const { return max_pending_; }

  // Says why, and closes.
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
