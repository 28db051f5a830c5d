// One call of a launcher at the meeting point: connect, prove to each other that both know the token, ask to join. Ends
// with a link to a coordinator that has taken this host in, or with the reason why not. Destroying it hangs up.
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
    std::unique_ptr<net::MessageLink>
        link;  // joined; set its handlers at once, more messages may follow in the same breath
    JoinedMessage joined;
    std::string error_text;     // else this
    bool is_permanent = false;  // trying again is of no use
  };
  // Comes from the loop, once; may destroy the call.
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
