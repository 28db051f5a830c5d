#include "runtime/session/session_heartbeat.h"

#include "base/log.h"
#include "torch_backend/named_thread.h"

namespace fulldeck::runtime {
namespace {

constexpr std::chrono::milliseconds kBeatInterval(1000);
constexpr std::chrono::milliseconds kCheckInterval(250);

}  // namespace

Heartbeat::Heartbeat(fulldeck_board* board) : board_(board) {
  thread_ = torch_backend::StartNamedThread("fulldeck-beat", [this] { Beat(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Heartbeat::Watch(std::function<void()> check) {
  const std::lock_guard lock(mutex_);
  check_ = std::move(check);
  changed_.notify_all();
}

void Heartbeat::Beat() {
  auto next_beat = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stops_) {
    const std::function<void()> check = check_;
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_beat) {
      fulldeck_board_heartbeat(board_);
      next_beat = now + kBeatInterval;
    }
    bool failed = false;
    if (check) {
      try {
        check();
      } catch (const std::exception&) {
        failed = true;  // the store is gone, and the run has failed; the loop's own calls report it
      }
    }
    lock.lock();
    if (failed) check_ = nullptr;
    if (stops_) break;
    changed_.wait_for(lock, check_ ? kCheckInterval : kBeatInterval);
  }
}

}  // namespace fulldeck::runtime
