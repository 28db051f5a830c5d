// Nodes of a run inside one test: node groups of several launchers on one loop, which record their events, and a proxy
// for the network between two of them that can be slow, blackholed in one direction, or cut.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/files/unique_fd.h"
#include "loop_sockets.h"
#include "nodes/node_group.h"

namespace fulldeck::testing {

// One launcher of a run. Its events are recorded. There are no real ranks: after a stop they are gone immediately.
class TestNode {
 public:
  TestNode(base::EventLoop& loop, nodes::NodeGroupOptions options) : name(options.host_name) {
    nodes::NodeGroupEvents events;
    events.take_master_port = [this]() -> base::Result<int> {
      ++ports_taken;
      if (port_error) return base::Error{*port_error};
      return next_port++;
    };
    events.start = [this](const nodes::AttemptStart& start) { starts.push_back(start); };
    events.stop = [this](const nodes::NodeFailure& failure) {
      stops.push_back(failure);
      if (obeys) group->Stopped();
    };
    events.restarting = [this](const nodes::NodeFailure& failure, base::Duration) { restartings.push_back(failure); };
    events.finished = [this](const std::optional<nodes::NodeFailure>& failure) {
      ++finish_count;
      finished = true;
      verdict = failure;
    };
    events.restart = [this](const nodes::NodeFailure& failure) -> std::optional<base::Duration> {
      restart_requests.push_back(failure);
      if (restarts_left-- <= 0) return std::nullopt;
      return restart_delay;
    };
    events.gave_up = [this](const std::string& reason) {
      ++finish_count;
      gave_up = reason;
    };
    events.report = [this](const std::string& line) { logged.push_back(line); };
    group = std::make_unique<nodes::NodeGroup>(loop, std::move(options), std::move(events));
  }

  // A rank failed here, and all ranks are gone.
  void FailAndStop(const std::string& summary, base::TimePoint seen_at = {}) {
    nodes::NodeFailure failure;
    failure.summary = summary;
    failure.seen_at = seen_at;
    group->Failed(failure);
    group->Stopped();
  }

  bool Logged(const std::string& part) const {
    return std::any_of(logged.begin(), logged.end(),
                       [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }
  std::string AllLogged() const {
    std::string text;
    for (const std::string& line : logged) text += name + ": " + line + "\n";
    return text;
  }

  std::string name;
  bool obeys = true;
  int restarts_left = 0;
  base::Duration restart_delay{0};
  int next_port = 40001;
  std::optional<std::string> port_error;

  int ports_taken = 0;
  std::vector<nodes::AttemptStart> starts;
  std::vector<nodes::NodeFailure> stops, restartings, restart_requests;
  bool finished = false;
  int finish_count = 0;
  std::optional<nodes::NodeFailure> verdict;
  std::optional<std::string> gave_up;
  std::vector<std::string> logged;
  std::unique_ptr<nodes::NodeGroup> group;
};

// The network between a member and the coordinator at `target_port`.
class LinkProxy {
 public:
  struct Direction {
    bool blackholed = false;      // sent data does not arrive
    base::Duration min_delay{0};  // each chunk is delayed by a time between these two, in order
    base::Duration max_delay{0};
    std::uint64_t bytes = 0;  // received bytes
  };

  LinkProxy(base::EventLoop& loop, int target_port) : loop_(loop), target_port_(target_port) {
    listener_ = ListenOnLoopback(0, port_);
    watch_ = *loop_.WhenReadable(listener_.get(), [this] { Accept(); });
  }
  ~LinkProxy() {
    loop_.Remove(watch_);
    for (const auto& flow : flows_) flow->Close(loop_);
  }
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  int port() const { return port_; }
  // Closes every connection in both directions, as the kernel does for a killed launcher.
  void HangUp() {
    for (const auto& flow : flows_) flow->Close(loop_);
    flows_.clear();
  }

  Direction to_coordinator, to_member;

 private:
  // One direction of one connection.
  struct Flow {
    std::shared_ptr<base::UniqueFd> from, to;
    Direction* direction = nullptr;
    base::EventLoop::Id watch = 0;
    std::deque<base::EventLoop::Id> timers;
    base::TimePoint last_release{};

    void Close(base::EventLoop& loop) {
      loop.Remove(watch);
      watch = 0;
      for (const auto timer : timers) loop.Remove(timer);
      timers.clear();
      from->Reset();
      to->Reset();
    }
  };

  void Accept() {
    auto near = std::make_shared<base::UniqueFd>(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!near->valid()) return;
    auto far = std::make_shared<base::UniqueFd>(ConnectTo(target_port_));
    if (!far->valid()) return;
    Begin(near, far, to_coordinator);
    Begin(far, near, to_member);
  }

  void Begin(std::shared_ptr<base::UniqueFd> from, std::shared_ptr<base::UniqueFd> to, Direction& direction) {
    flows_.push_back(std::make_unique<Flow>());
    Flow* const flow = flows_.back().get();
    flow->from = std::move(from);
    flow->to = std::move(to);
    flow->direction = &direction;
    fcntl(flow->from->get(), F_SETFL, O_NONBLOCK);
    flow->watch = *loop_.WhenReadable(flow->from->get(), [this, flow] { Forward(*flow); });
  }

  void Forward(Flow& flow) {
    std::array<char, 65536> buffer;
    const ssize_t got = recv(flow.from->get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      loop_.Remove(flow.watch);
      flow.watch = 0;
      // The end of the stream does not arrive either.
      if (!flow.direction->blackholed) Later(flow, "");
      return;
    }
    if (flow.direction->blackholed) return;
    Later(flow, std::string(buffer.data(), static_cast<std::size_t>(got)));
  }

  // Empty bytes mean the end of the stream.
  void Later(Flow& flow, const std::string& bytes) {
    std::uniform_int_distribution<std::int64_t> delay(
        flow.direction->min_delay.count(), std::max(flow.direction->min_delay, flow.direction->max_delay).count());
    const base::TimePoint release =
        std::max(flow.last_release, base::SteadyClock::Instance().Now() + base::Duration(delay(random_)));
    flow.last_release = release;
    if (flow.direction->max_delay == base::Duration(0)) return Deliver(flow, bytes);
    flow.timers.push_back(loop_.At(release, [this, &flow, bytes] { Deliver(flow, bytes); }));
    if (flow.timers.size() > 1000) flow.timers.pop_front();
  }

  static void Deliver(Flow& flow, const std::string& bytes) {
    if (bytes.empty()) {
      shutdown(flow.to->get(), SHUT_WR);
      return;
    }
    flow.direction->bytes += bytes.size();
    [[maybe_unused]] const ssize_t sent = send(flow.to->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  base::EventLoop& loop_;
  int target_port_;
  int port_ = 0;
  base::UniqueFd listener_;
  base::EventLoop::Id watch_ = 0;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::mt19937 random_{7};
};

}  // namespace fulldeck::testing
