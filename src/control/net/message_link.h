// One connection between two launchers: sends and receives whole messages and never blocks. What a message means is
// defined elsewhere (nodes/node_messages.h). A length is checked before memory is allocated for it.
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

// Magic of each frame (wire/bytes_header.h).
inline constexpr std::string_view kLinkMagic = "FDHOSTS1";
inline constexpr std::uint32_t kLinkVersion = 1;
// The limit of all messages; a link may have a lower one.
inline constexpr std::uint32_t kLongestMessage = 2 * 1024 * 1024;

class MessageLink {
 public:
  enum class EndKind {
    kClosed,        // the other end closed the connection, or its process ended
    kBroken,        // the network gave up
    kNotOurs,       // the received bytes do not follow this protocol, or are too many
    kOtherVersion,  // the other end uses another version of the protocol
  };
  struct End {
    EndKind kind = EndKind::kClosed;
    std::string reason;  // only used in messages
  };
  struct Handlers {
    std::function<void(std::string_view message)> message;
    // Called once, and no handler is called after it. Not called when this side destroys the link. After kNotOurs and
    // kOtherVersion a final message can still be sent.
    std::function<void(const End& end)> ended;
  };

  // `connected` is a non-blocking socket.
  MessageLink(base::EventLoop& loop, base::UniqueFd connected, std::uint32_t message_limit, Handlers handlers);
  ~MessageLink();
  MessageLink(const MessageLink&) = delete;
  MessageLink& operator=(const MessageLink&) = delete;

  // Takes effect with the next message, also when called inside a handler.
  void SetHandlers(Handlers handlers);
  void SetMessageLimit(std::uint32_t bytes) { message_limit_ = bytes; }
  // Limit of all bytes received; low for a peer that is not authenticated yet.
  void SetTotalLimit(std::optional<std::uint64_t> bytes) { total_limit_ = bytes; }

  // Never blocks and never calls a handler. Output that the socket does not accept is buffered, up to a limit at
  // which the link counts as broken. A link that has ended discards the message.
  void Send(std::string_view message);

  // Shuts the write direction down after the buffered output is sent. Input is discarded until the other end closes,
  // too, which is reported through `ended`. Closing the socket immediately could destroy data that the other end has
  // not read yet.
  void ShutdownWrite();

  // Whether the socket can no longer be used.
  bool closed() const { return closed_; }

  const std::string& remote_address() const { return remote_address_; }  // numeric, without port
  const std::string& local_address() const { return local_address_; }

 private:
  void Read();
  bool TakeMessages();  // false: the caller must stop reading
  void Write();
  void WantToWrite(bool wanted);
  void CloseSoon(const std::string& reason);
  void Closed(EndKind kind, std::string reason);
  void NotifyEnd(EndKind kind, std::string reason);

  base::EventLoop& loop_;
  base::UniqueFd fd_;
  base::UniqueFd write_fd_;  // duplicate of fd_ for the second watch on one socket; open while output is buffered
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
  bool discards_input_ = false;   // no more messages are delivered
  bool write_shut_down_ = false;  // no more messages are accepted
  bool closed_ = false;
};

// Links on which the final message was sent. Keeps each one until the other end has closed it, but at most for its
// timeout.
class ClosingLinks {
 public:
  explicit ClosingLinks(base::EventLoop& loop) : loop_(loop) {}
  ~ClosingLinks();
  ClosingLinks(const ClosingLinks&) = delete;
  ClosingLinks& operator=(const ClosingLinks&) = delete;

  // Beyond `most`, the oldest link is closed immediately.
  void SetMax(std::size_t most) { max_ = most; }
  void Add(std::unique_ptr<MessageLink> link, base::Duration timeout);
  std::size_t size() const { return links_.size(); }
  // Called when the last link is gone.
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
