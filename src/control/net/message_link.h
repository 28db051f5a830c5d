// One connection between two launchers: whole messages in, whole messages out, nothing blocks. What the bytes mean is
// another's business (node_messages.h). A length is checked before anything is kept for it.
//
// One thread: the loop's. Handlers may destroy the link.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/event_loop.h"
#include "base/files/unique_fd.h"

namespace fulldeck::net {

// What frames begin with (wire/bytes_header.h).
inline constexpr std::string_view kLinkMagic = "FDHOSTS1";
inline constexpr std::uint32_t kLinkVersion = 1;
// The longest message of all; a link may have a lower limit.
inline constexpr std::uint32_t kLongestMessage = 2 * 1024 * 1024;

class MessageLink {
 public:
  enum class EndKind {
    kClosed,        // the other end closed it, or its process ended
    kBroken,        // the network gave up
    kNotOurs,       // what came is not of this protocol, or too long
    kOtherVersion,  // the other end speaks another version of it
  };
  struct End {
    EndKind kind = EndKind::kClosed;
    std::string reason;  // for people
  };
  struct Handlers {
    std::function<void(std::string_view message)> message;
    // Once, and nothing comes after it. Not called when this side destroys the link. After kNotOurs and kOtherVersion a
    // last word can still be sent.
    std::function<void(const End& end)> ended;
  };

  // `connected` is a non-blocking socket.
  MessageLink(base::EventLoop& loop, base::UniqueFd connected, std::uint32_t message_limit, Handlers handlers);
  ~MessageLink();
  MessageLink(const MessageLink&) = delete;
  MessageLink& operator=(const MessageLink&) = delete;

  // Takes effect with the next message, also inside a handler.
  void SetHandlers(Handlers handlers);
  void SetMessageLimit(std::uint32_t bytes) { message_limit_ = bytes; }
  // All bytes that may come in; a stranger is given a small number.
  void SetTotalLimit(std::optional<std::uint64_t> bytes) { total_limit_ = bytes; }

  // Never blocks and never calls a handler. What the socket does not take is kept, up to a limit at which the link
  // counts as broken; a link that has ended swallows it.
  void Send(std::string_view message);

  // After what is kept has gone out, tells the other end that no more follows; what still comes is thrown away until
  // the other end closes too, which `ended` tells. Closing at once could take back what the other end has not read yet.
  void ShutdownWrite();

  // Whether the socket is of no more use.
  bool closed() const { return closed_; }

  const std::string& remote_address() const { return remote_address_; }  // numeric, without port
  const std::string& local_address() const { return local_address_; }

 private:
  void Read();
  bool TakeMessages();  // false when reading must not go on
  void Write();
  void WantToWrite(bool wanted);
  void CloseSoon(const std::string& reason);
  void Closed(EndKind kind, std::string reason);
  void NotifyEnd(EndKind kind, std::string reason);

  base::EventLoop& loop_;
  base::UniqueFd fd_;
  base::UniqueFd write_fd_;  // a twin of fd_ for the second watch of one socket; open while output waits
  std::shared_ptr<Handlers> handlers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::uint32_t message_limit_;
  std::optional<std::uint64_t> total_limit_;
  std::uint64_t total_in_ = 0;
  std::string in_;
  std::string out_;
  std::string remote_address_;
  std::string local_address_;
  base::EventLoop::Id read_watch_ = 0;
  base::EventLoop::Id write_watch_ = 0;
  base::EventLoop::Id closed_timer_ = 0;
  bool discards_input_ = false;   // no more messages are taken
  bool write_shut_down_ = false;  // no more are sent
  bool closed_ = false;
};

// Links on which the last word was said: keeps each until the other end has closed it, for a short while at most.
class ClosingLinks {
 public:
  explicit ClosingLinks(base::EventLoop& loop) : loop_(loop) {}
  ~ClosingLinks();
  ClosingLinks(const ClosingLinks&) = delete;
  ClosingLinks& operator=(const ClosingLinks&) = delete;

  // Beyond `most` the oldest is closed at once.
  void SetMax(std::size_t most) { max_ = most; }
  void Add(std::unique_ptr<MessageLink> link, base::Duration timeout);
  std::size_t size() const { return links_.size(); }
  // Called when the last one has gone.
  void WhenEmpty(std::function<void()> handler) { when_empty_ = std::move(handler); }

 private:
  struct Closing {
    std::unique_ptr<MessageLink> link;
    base::EventLoop::Id timer = 0;
  };
  void Remove(std::uint64_t key);

  base::EventLoop& loop_;
  std::map<std::uint64_t, Closing> links_;
  std::uint64_t next_key_ = 0;
  std::size_t max_ = static_cast<std::size_t>(-1);
  std::function<void()> when_empty_;
};

}  // namespace fulldeck::net
