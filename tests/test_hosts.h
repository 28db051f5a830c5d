// Hosts of a run inside one test: launchers' host groups on one loop that remember what they were told, and a proxy
// that stands for the network between two of them and can be slow, deaf in one direction, or cut.
#pragma once

#include <arpa/inet.h>
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
#include "base/unique_fd.h"
#include "launcher/host_group.h"

namespace fulldeck::testing {

// Runs the loop until the condition holds; gives up after a time that no healthy machine needs.
template <typename Condition>
bool RunUntil(base::EventLoop& loop, Condition condition, base::Duration patience = std::chrono::seconds(30)) {
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + patience;
  while (!condition()) {
    const base::Duration left = deadline - base::SteadyClock::Instance().Now();
    if (left <= base::Duration(0)) return false;
    loop.RunOnce(left);
  }
  return true;
}

// The same for a condition that depends on a socket which is not on the loop.
template <typename Condition>
bool PollUntil(base::EventLoop& loop, Condition condition, base::Duration patience = std::chrono::seconds(30)) {
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + patience;
  while (!condition()) {
    if (base::SteadyClock::Instance().Now() > deadline) return false;
    loop.RunOnce(std::chrono::milliseconds(2));
  }
  return true;
}

// Keeps the loop going for a time in which something must not happen.
inline void RunFor(base::EventLoop& loop, base::Duration time) {
  RunUntil(
      loop, [] { return false; }, time);
}

inline sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

inline base::UniqueFd ListenOnLoopback(int port, int& bound_port) {
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = Loopback(port);
  socklen_t length = sizeof address;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd.get(), 16) != 0) return {};
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  bound_port = ntohs(address.sin_port);
  return fd;
}

inline int FreePort() {
  int port = 0;
  ListenOnLoopback(0, port);
  return port;
}

// A socket of a stranger, blocking.
inline base::UniqueFd ConnectTo(int port) {
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return fd;
}

// One launcher of a run. What it is told is kept; ranks are as good as their answers: after a stop they are gone at
// once.
class TestHost {
 public:
  TestHost(base::EventLoop& loop, launcher::HostGroupOptions options) : name(options.host_name) {
    launcher::HostGroupEvents events;
    events.take_master_port = [this]() -> base::Result<int> {
      ++ports_taken;
      if (port_trouble) return base::Error{*port_trouble};
      return next_port++;
    };
    events.start = [this](const launcher::AttemptStart& start) { starts.push_back(start); };
    events.stop = [this](const launcher::HostFailure& failure) {
      stops.push_back(failure);
      if (obeys) group->Stopped();
    };
    events.restarting = [this](const launcher::HostFailure& failure, base::Duration) {
      restartings.push_back(failure);
    };
    events.finished = [this](const std::optional<launcher::HostFailure>& failure) {
      ++endings;
      finished = true;
      verdict = failure;
    };
    events.restart = [this](const launcher::HostFailure& failure) -> std::optional<base::Duration> {
      asked.push_back(failure);
      if (restarts_left-- <= 0) return std::nullopt;
      return restart_delay;
    };
    events.gave_up = [this](const std::string& reason) {
      ++endings;
      gave_up = reason;
    };
    events.say = [this](const std::string& line) { said.push_back(line); };
    group = std::make_unique<launcher::HostGroup>(loop, std::move(options), std::move(events));
  }

  // A rank failed here, and all are gone.
  void FailAndStop(const std::string& summary, base::TimePoint seen_at = {}) {
    launcher::HostFailure failure;
    failure.summary = summary;
    failure.seen_at = seen_at;
    group->Failed(failure);
    group->Stopped();
  }

  bool Said(const std::string& part) const {
    return std::any_of(said.begin(), said.end(),
                       [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }
  std::string AllSaid() const {
    std::string text;
    for (const std::string& line : said) text += name + ": " + line + "\n";
    return text;
  }

  std::string name;
  bool obeys = true;
  int restarts_left = 0;
  base::Duration restart_delay{0};
  int next_port = 40001;
  std::optional<std::string> port_trouble;

  int ports_taken = 0;
  std::vector<launcher::AttemptStart> starts;
  std::vector<launcher::HostFailure> stops, restartings, asked;
  bool finished = false;
  int endings = 0;
  std::optional<launcher::HostFailure> verdict;
  std::optional<std::string> gave_up;
  std::vector<std::string> said;
  std::unique_ptr<launcher::HostGroup> group;
};

// The network between a member and the coordinator at `target_port`.
class LinkProxy {
 public:
  struct Direction {
    bool deaf = false;              // what is sent does not arrive
    base::Duration least_delay{0};  // each piece is late by a time between these two, and in order
    base::Duration most_delay{0};
    std::uint64_t bytes = 0;  // that arrived
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
  // Closes every connection in both directions, as a killed launcher's kernel does.
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
      // An end does not get through either.
      if (!flow.direction->deaf) Later(flow, "");
      return;
    }
    if (flow.direction->deaf) return;
    Later(flow, std::string(buffer.data(), static_cast<std::size_t>(got)));
  }

  // Empty bytes are the end of the stream.
  void Later(Flow& flow, const std::string& bytes) {
    std::uniform_int_distribution<std::int64_t> delay(
        flow.direction->least_delay.count(), std::max(flow.direction->least_delay, flow.direction->most_delay).count());
    const base::TimePoint release =
        std::max(flow.last_release, base::SteadyClock::Instance().Now() + base::Duration(delay(random_)));
    flow.last_release = release;
    if (flow.direction->most_delay == base::Duration(0)) return Deliver(flow, bytes);
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
