// BackgroundSaver: the thread `fulldeck-save` that makes checkpoints durable while training goes on. One at a time; the
// owner joins it by destroying this object, which waits for a save that is under way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"
#include "checkpoint/store.h"

namespace fulldeck::checkpoint {

struct SaveOutcome {
  std::uint64_t step = 0;
  std::optional<std::string> failure;  // nothing: it is durable
  std::uint64_t bytes = 0;             // of a durable one
  std::chrono::nanoseconds took{0};    // from Start
};

class BackgroundSaver {
 public:
  // `ended` is called on the saving thread, before the outcome can be asked for. It must not call this object.
  BackgroundSaver(Store store, std::function<void(const SaveOutcome&)> ended);
  ~BackgroundSaver();

  // Begins to save and returns at once. The tensors' data must stay as they are until busy() is false. Not while busy.
  void Start(Contents contents);

  bool busy() const;
  // Until nothing is under way; false when that takes longer than `limit`.
  bool Wait(std::chrono::milliseconds limit = std::chrono::milliseconds::max()) const;

  // What ended last, if anything has since the last call.
  std::optional<SaveOutcome> TakeOutcome();
  std::optional<std::uint64_t> last_durable_step() const;

  // As of the Store; not while busy.
  void SetTrust(std::uint64_t step, KeptCheckpoint::Trust trust);

 private:
  void Run();

  Store store_;  // the thread's while busy, else the owner's
  std::function<void(const SaveOutcome&)> ended_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Contents> contents_;  // busy
  std::chrono::steady_clock::time_point started_;
  std::optional<SaveOutcome> outcome_;
  std::optional<std::uint64_t> last_durable_;
  bool stop_ = false;
  std::thread thread_;  // started by the first Start(), so that a process may fork before
};

}  // namespace fulldeck::checkpoint
