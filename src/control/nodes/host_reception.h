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
#include "nodes/host_messages.h"
#include "nodes/host_role.h"

namespace fulldeck::nodes {

// One thread: the loop's. Destroying it closes the door and all connections that were not handed over.
class HostReception {
 public:
  // As many are served at once, and as many more are sent the reason why they are rejected; fewer where this
  // process may open few files: together they take at most half of those, and the other half stays for the run.
  static constexpr std::size_t kMostStrangers = 128;

  using Arrived = std::function<void(std::unique_ptr<net::MessageLink> link, const JoinMessage& join)>;

  HostReception(HostGroupCore& core, base::UniqueFd listener, Arrived arrived);
  ~HostReception();
  HostReception(const HostReception&) = delete;
  HostReception& operator=(const HostReception&) = delete;

  // Connections that were not handed over.
  std::size_t connections() const { return strangers_.size() + departing_.size(); }
  std::size_t most_strangers() const { return most_strangers_; }

  // Says why, and closes.
  void TurnAway(std::unique_ptr<net::MessageLink> link, const std::string& reason);

 private:
  struct Stranger;
  void Watch();
  void Accept();
  void Admit(base::UniqueFd connected);
  void OnMessage(Stranger& stranger, std::string_view text);
  void Complain(const Stranger& stranger, const std::string& reason);
  std::unique_ptr<net::MessageLink> Forget(Stranger& stranger);

  HostGroupCore& core_;
  base::UniqueFd listener_;
  Arrived arrived_;
  base::EventLoop::Id watch_ = 0;
  LoopTimer pause_;
  std::list<std::unique_ptr<Stranger>> strangers_;  // oldest first
  net::DepartingLinks departing_;
  std::size_t most_strangers_;
  int complaints_ = 0;
};

}  // namespace fulldeck::nodes
