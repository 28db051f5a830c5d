// The session's own thread, `fulldeck-beat`. It writes a heartbeat to the rank board once a second. On request it also
// checks whether another rank has aborted the group, so that this rank's wait in it ends too: for groups whose backend
// does not notify the other ranks by itself.
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
  ~Heartbeat();  // joins the thread
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // `check` is called four times a second from then on, until it throws.
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
