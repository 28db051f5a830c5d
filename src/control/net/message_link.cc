#include "net/message_link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "net/host_address.h"
#include "wire/bytes_header.h"

namespace fulldeck::net {
namespace {

// Far more than a healthy link ever buffers; a peer that lets this much wait does not read.
constexpr std::size_t kOutputLimit = 4 * std::size_t{kLongestMessage};
// A flood on one link must not starve the others.
constexpr int kReadsInARow = 8;

}  // namespace

// Invariants:
// - `ended` is called at most once per set of handlers: NotifyEnd replaces handlers_ by empty ones before the call.
//   Send and ShutdownWrite never call a handler: errors of the write side are reported by CloseSoon through the loop,
//   or by the next read.
// - After any handler returns, `this` may be gone. Each caller returns directly or checks its own copy of alive_
//   first.
// - read_watch_ stays active until closed_, also after NotifyEnd: input is then discarded, and the end of the
//   connection is still seen.
// - in_ never holds more than one frame whose length CheckHeader has accepted, plus one read.

MessageLink::MessageLink(base::EventLoop& loop, base::UniqueFd connected, std::uint32_t message_limit,
                         Handlers handlers)
    : loop_(loop),
      fd_(std::move(connected)),
      handlers_(std::make_shared<Handlers>(std::move(handlers))),
      message_limit_(message_limit),
      remote_address_(RemoteEnd(fd_.get()).Numeric()),
      local_address_(LocalEnd(fd_.get()).Numeric()) {
  const auto watch = loop_.WhenReadable(fd_.get(), [this] { Read(); });
  if (watch) {
    read_watch_ = *watch;
  } else {
    CloseSoon(watch.error().message);
  }
}

MessageLink::~MessageLink() {
  *alive_ = false;
  loop_.Remove(read_watch_);
  loop_.Remove(write_watch_);
  loop_.Remove(closed_timer_);
}

void MessageLink::SetHandlers(Handlers handlers) {
  handlers_ = std::make_shared<Handlers>(std::move(handlers));
}

void MessageLink::Read() {
  std::array<char, 16 * 1024> buffer;
  for (int i = 0; i < kReadsInARow; ++i) {
    const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE))) {
      return Closed(EndKind::kClosed, "the connection was closed");
    }
    if (got < 0) return Closed(EndKind::kBroken, std::strerror(errno));
    if (discards_input_) continue;
    total_in_ += static_cast<std::uint64_t>(got);
    in_.append(buffer.data(), static_cast<std::size_t>(got));
    if (!TakeMessages()) return;
  }
}

bool MessageLink::TakeMessages() {
  const std::shared_ptr<bool> alive = alive_;
  std::size_t taken = 0;
  while (!discards_input_) {
    const std::string_view rest = std::string_view(in_).substr(taken);
    const std::size_t known = std::min(rest.size(), kLinkMagic.size());
    if (rest.substr(0, known) != kLinkMagic.substr(0, known)) {
      NotifyEnd(EndKind::kNotOurs, "it does not speak as a fulldeck launcher");
      return false;
    }
    wire::BytesHeader header;
    if (rest.size() < sizeof header) break;
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.version != kLinkVersion) {
      NotifyEnd(EndKind::kOtherVersion, "it speaks version " + std::to_string(header.version) +
                                            " of the protocol between hosts, this fulldeck speaks version " +
                                            std::to_string(kLinkVersion) + ": use the same fulldeck on all hosts");
      return false;
    }
    const auto checked = wire::CheckHeader(header, kLinkMagic, kLinkVersion, message_limit_, "its message");
    if (!checked) {
      NotifyEnd(EndKind::kNotOurs, checked.error().message);
      return false;
    }
    if (rest.size() - sizeof header < header.length) break;
    taken += sizeof header + header.length;
    // Copies: the handler may destroy this link or replace the handlers.
    const std::string message(rest.substr(sizeof header, header.length));
    const std::shared_ptr<Handlers> handlers = handlers_;
    handlers->message(message);
    if (!*alive) return false;
  }
  in_.erase(0, taken);
  if (discards_input_ || !total_limit_ || total_in_ <= *total_limit_) return true;
  NotifyEnd(EndKind::kNotOurs, "it sends too much");
  return false;
}

void MessageLink::Send(std::string_view message) {
  if (closed_ || write_shut_down_) return;
  const wire::BytesHeader header =
      wire::MakeHeader(kLinkMagic, kLinkVersion, static_cast<std::uint32_t>(message.size()));
  out_.append(reinterpret_cast<const char*>(&header), sizeof header);
  out_.append(message);
  Write();
  if (out_.size() > kOutputLimit) CloseSoon("the other end does not read");
}

void MessageLink::Write() {
  while (!out_.empty()) {
    const ssize_t written = send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return WantToWrite(true);
    if (written < 0) {
      // The read side reports the error, after the data that had arrived before it.
      out_.clear();
      break;
    }
    out_.erase(0, static_cast<std::size_t>(written));
  }
  WantToWrite(false);
  if (write_shut_down_) static_cast<void>(shutdown(fd_.get(), SHUT_WR));
}

void MessageLink::WantToWrite(bool wanted) {
  if (wanted == (write_watch_ != 0)) return;
  if (!wanted) {
    loop_.Remove(write_watch_);
    write_watch_ = 0;
    write_fd_.Reset();
    return;
  }
  write_fd_.Reset(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  const auto watch = loop_.WhenWritable(write_fd_.get(), [this] { Write(); });
  // Out of descriptors: the buffered output goes out with the next message.
  if (watch) {
    write_watch_ = *watch;
  } else {
    write_fd_.Reset();
  }
}

void MessageLink::ShutdownWrite() {
  if (closed_ || write_shut_down_) return;
  discards_input_ = true;
  write_shut_down_ = true;
  Write();
}

void MessageLink::CloseSoon(const std::string& reason) {
  if (closed_timer_ != 0) return;
  closed_timer_ = loop_.After(base::Duration(0), [this, reason] { Closed(EndKind::kBroken, reason); });
}

void MessageLink::Closed(EndKind kind, std::string reason) {
  if (closed_) return;
  closed_ = true;
  out_.clear();
  loop_.Remove(read_watch_);
  WantToWrite(false);
  NotifyEnd(kind, std::move(reason));
}

void MessageLink::NotifyEnd(EndKind kind, std::string reason) {
  discards_input_ = true;
  in_.clear();
  const std::shared_ptr<Handlers> handlers = std::exchange(handlers_, std::make_shared<Handlers>());
  if (handlers->ended) handlers->ended({kind, std::move(reason)});
}

ClosingLinks::~ClosingLinks() {
  for (const auto& [key, closing] : links_) loop_.Remove(closing.timer);
}

void ClosingLinks::Add(std::unique_ptr<MessageLink> link, base::Duration timeout) {
  if (link->closed()) return;
  while (!links_.empty() && links_.size() >= max_) {
    const auto oldest = links_.begin();  // the keys increase
    loop_.Remove(oldest->second.timer);
    links_.erase(oldest);
  }
  const std::uint64_t key = next_key_++;
  link->SetHandlers({[](std::string_view) {}, [this, key](const MessageLink::End&) { Remove(key); }});
  link->ShutdownWrite();
  links_[key] = {std::move(link), loop_.After(timeout, [this, key] { Remove(key); })};
}

void ClosingLinks::Remove(std::uint64_t key) {
  const auto found = links_.find(key);
  if (found == links_.end()) return;
  loop_.Remove(found->second.timer);
  links_.erase(found);
  if (links_.empty() && when_empty_) {
    // The handler may destroy this object.
    const std::function<void()> handler = when_empty_;
    handler();
  }
}

}  // namespace fulldeck::net
