// One attempt of a launcher to join at the rendezvous endpoint: connect, authenticate both ends with the token, ask
// to join. Ends with a link to a coordinator that has accepted this node, or with an error. The destructor aborts it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/files/unique_fd.h"
#include "net/host_address.h"
#include "net/message_link.h"
#include "nodes/node_messages.h"
#include "nodes/node_role.h"

namespace fulldeck::nodes {

class NodeConnector {
 public:
  struct Outcome {
    // Set if this node has joined. Set its handlers immediately: more messages may already be in its buffer.
    std::unique_ptr<net::MessageLink> link;
    JoinedMessage joined;
    std::string error_text;     // set if it failed
    bool is_permanent = false;  // retrying cannot help
  };
  // Called from the loop, once; may destroy this object.
  using Done = std::function<void(Outcome outcome)>;

  NodeConnector(NodeGroupContext& context, const net::HostAddress& address, Done done);
  ~NodeConnector();
  NodeConnector(const NodeConnector&) = delete;
  NodeConnector& operator=(const NodeConnector&) = delete;

 private:
  void Connected();
  void OnMessage(std::string_view text);
  void Fail(const std::string& error_text, bool is_permanent = false);
  void Finish(Outcome outcome);

  NodeGroupContext& context_;
  net::HostAddress address_;
  Done done_;
  base::UniqueFd connecting_;
  base::EventLoop::Id watch_ = 0;
  base::LoopTimer timer_;
  std::unique_ptr<net::MessageLink> link_;
  std::string our_nonce_;
  std::string their_nonce_;
  bool authenticated_ = false;
};

}  // namespace fulldeck::nodes
