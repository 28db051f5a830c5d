// BackgroundSaver: the thread `fulldeck-save`, which makes checkpoints durable while training continues. One save at a
// time; the destructor waits for a running save and joins the thread.
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
  std::optional<std::string> failure;  // nullopt: the checkpoint is durable
  std::uint64_t bytes = 0;             // of a durable one
  std::chrono::nanoseconds took{0};    // since Start()
};

class BackgroundSaver {
 public:
  // `ended` is called on the saving thread, before the outcome is available. It must not call this object.
  BackgroundSaver(Store store, std::function<void(const SaveOutcome&)> ended);
  ~BackgroundSaver();

  // Starts a save and returns immediately. The tensors' data must not change until busy() is false. Not while busy.
  void Start(Contents contents);

  bool busy() const;
  // Waits until no save is running; false if that takes longer than `limit`.
  bool Wait(std::chrono::milliseconds limit = std::chrono::milliseconds::max()) const;

  // The outcome of the last save, if one has ended since the last call.
  std::optional<SaveOutcome> TakeOutcome();
  std::optional<std::uint64_t> last_durable_step() const;

  // See Store; not while busy.
  void SetTrust(std::uint64_t step, KeptCheckpoint::Trust trust);

 private:
  void Run();

  Store store_;  // owned by the saving thread while busy, otherwise by the owner of this object
  std::function<void(const SaveOutcome&)> ended_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Contents> contents_;  // set while busy
  std::chrono::steady_clock::time_point started_;
  std::optional<SaveOutcome> outcome_;
  std::optional<std::uint64_t> last_durable_;
  bool stop_ = false;
  std::thread thread_;  // started by the first Start(), so that a process may fork before that
};

}  // namespace fulldeck::checkpoint
