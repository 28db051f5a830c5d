#include "runtime/session/session_heart.h"

#include "base/log.h"
#include "torch_backend/named_thread.h"

namespace fulldeck::runtime {
namespace {

constexpr std::chrono::milliseconds kBeat(1000);
constexpr std::chrono::milliseconds kLook(250);

}  // namespace

Heart::Heart(fulldeck_board* board) : board_(board) {
  thread_ = torch_backend::StartNamedThread("fulldeck-heart", [this] { Beat(); });
}

Heart::~Heart() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Heart::Watch(std::function<void()> look) {
  const std::lock_guard lock(mutex_);
  look_ = std::move(look);
  changed_.notify_all();
}

void Heart::Beat() {
  auto next_beat = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stops_) {
    const std::function<void()> look = look_;
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_beat) {
      fulldeck_board_heartbeat(board_);
      next_beat = now + kBeat;
    }
    bool failed = false;
    if (look) {
      try {
        look();
      } catch (const std::exception&) {
        failed = true;  // the store is gone, and the run with it; the loop's own calls say so
      }
    }
    lock.lock();
    if (failed) look_ = nullptr;
    if (stops_) break;
    changed_.wait_for(lock, look_ ? kLook : kBeat);
  }
}

}  // namespace fulldeck::runtime
