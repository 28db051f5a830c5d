// What the coordinator and the members of a node group share: the options, the path to the owner's callbacks, and the
// calls that the owner makes on either role.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/event_loop.h"
#include "nodes/node_group.h"

namespace fulldeck::nodes {

// Runs functions from the loop, in order, outside of any other call. A function may destroy the queue.
class PostedCalls {
 public:
  explicit PostedCalls(base::EventLoop& loop) : loop_(loop) {}
  ~PostedCalls();
  PostedCalls(const PostedCalls&) = delete;
  PostedCalls& operator=(const PostedCalls&) = delete;
  void Post(std::function<void()> call);

 private:
  void Run();

  base::EventLoop& loop_;
  std::deque<std::function<void()>> calls_;
  base::EventLoop::Id timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class NodeGroupContext {
 public:
  NodeGroupContext(base::EventLoop& event_loop, NodeGroupOptions group_options, NodeGroupEvents group_events)
      : loop(event_loop), options(std::move(group_options)), events(std::move(group_events)), calls(event_loop) {}

  void LogLine(const std::string& line);
  void Start(const AttemptStart& start);
  void Stop(const NodeFailure& failure);
  void Restarting(const NodeFailure& failure, base::Duration delay);
  // The final callback: nothing is delivered after it.
  void Finished(const std::optional<NodeFailure>& failure);
  void GaveUp(const std::string& reason);

  base::TimePoint Now() const { return loop.clock().Now(); }

  base::EventLoop& loop;
  const NodeGroupOptions options;
  const NodeGroupEvents events;
  PostedCalls calls;
  std::uint64_t best_step = 0;  // of this node
  bool over = false;
};

// Calls by the owner of the group. They come from PostedCalls.
class NodeRole {
 public:
  virtual ~NodeRole() = default;
  virtual void Succeeded() = 0;
  virtual void Failed(const NodeFailure& failure) = 0;  // seen_at is set
  virtual void Stopped() = 0;
};

}  // namespace fulldeck::nodes
