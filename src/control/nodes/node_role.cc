#include "nodes/node_role.h"

namespace fulldeck::nodes {

PostedCalls::~PostedCalls() {
  *alive_ = false;
  loop_.Remove(timer_);
}

void PostedCalls::Post(std::function<void()> call) {
  calls_.push_back(std::move(call));
  if (timer_ == 0) timer_ = loop_.After(base::Duration(0), [this] { Run(); });
}

void PostedCalls::Run() {
  timer_ = 0;
  const std::shared_ptr<bool> alive = alive_;
  // Calls that are posted meanwhile run in a later turn, so that the loop is not starved.
  for (std::size_t left = calls_.size(); left > 0; --left) {
    const std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    call();
    if (!*alive) return;
  }
}

void NodeGroupContext::LogLine(const std::string& line) {
  if (over || !events.report) return;
  calls.Post([handler = events.report, line] { handler(line); });
}

void NodeGroupContext::Start(const AttemptStart& start) {
  if (over || !events.start) return;
  calls.Post([handler = events.start, start] { handler(start); });
}

void NodeGroupContext::Stop(const NodeFailure& failure) {
  if (over || !events.stop) return;
  calls.Post([handler = events.stop, failure] { handler(failure); });
}

void NodeGroupContext::Restarting(const NodeFailure& failure, base::Duration delay) {
  if (over || !events.restarting) return;
  calls.Post([handler = events.restarting, failure, delay] { handler(failure, delay); });
}

void NodeGroupContext::Finished(const std::optional<NodeFailure>& failure) {
  if (std::exchange(over, true) || !events.finished) return;
  calls.Post([handler = events.finished, failure] { handler(failure); });
}

void NodeGroupContext::GaveUp(const std::string& reason) {
  if (std::exchange(over, true) || !events.gave_up) return;
  calls.Post([handler = events.gave_up, reason] { handler(reason); });
}

}  // namespace fulldeck::nodes
