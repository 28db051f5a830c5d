// The session's own thread, `fulldeck-beat`: once a second a sign of life on the rank board, and, where it is asked
// to, a check whether another rank has aborted the group, so that this rank's wait in it ends too. That check is for
// groups whose backend does not tell the others by itself.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "fulldeck/rank_board.h"

namespace fulldeck::runtime {

class Heartbeat {
 public:
  explicit Heartbeat(fulldeck_board* board);
  ~Heartbeat();  // joins
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Called four times a second from then on; what it throws ends the looking.
  void Watch(std::function<void()> check);

 private:
  void Beat();

  fulldeck_board* const board_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::function<void()> check_;
  std::thread thread_;
};

}  // namespace fulldeck::runtime
