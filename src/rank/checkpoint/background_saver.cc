#include "checkpoint/background_saver.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "base/check.h"

namespace fulldeck::checkpoint {

BackgroundSaver::BackgroundSaver(Store store, std::function<void(const SaveOutcome&)> ended)
    : store_(std::move(store)), ended_(std::move(ended)) {}

BackgroundSaver::~BackgroundSaver() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundSaver::Start(Contents contents) {
  {
    const std::lock_guard lock(mutex_);
    FULLDECK_CHECK(!contents_.has_value());
    contents_ = std::move(contents);
    started_ = std::chrono::steady_clock::now();
  }
  if (!thread_.joinable()) {
    // Signals are handled by the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  changed_.notify_all();
}

bool BackgroundSaver::busy() const {
  const std::lock_guard lock(mutex_);
  return contents_.has_value();
}

bool BackgroundSaver::Wait(std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return !contents_.has_value(); };
  if (limit == std::chrono::milliseconds::max()) {
    changed_.wait(lock, idle);
    return true;
  }
  return changed_.wait_for(lock, limit, idle);
}

std::optional<SaveOutcome> BackgroundSaver::TakeOutcome() {
  const std::lock_guard lock(mutex_);
  return std::exchange(outcome_, std::nullopt);
}

std::optional<std::uint64_t> BackgroundSaver::last_durable_step() const {
  const std::lock_guard lock(mutex_);
  return last_durable_;
}

void BackgroundSaver::SetTrust(std::uint64_t step, KeptCheckpoint::Trust trust) {
  FULLDECK_CHECK(!busy());
  store_.SetTrust(step, trust);
}

void BackgroundSaver::Run() {
  pthread_setname_np(pthread_self(), "fulldeck-save");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return contents_.has_value() || stop_; });
    if (!contents_) return;
    lock.unlock();
    auto saved = store_.Save(*contents_);
    SaveOutcome outcome;
    outcome.step = contents_->step;
    if (saved) {
      outcome.bytes = saved->bytes();
    } else {
      outcome.failure = saved.error().message;
    }
    outcome.took = std::chrono::steady_clock::now() - started_;
    ended_(outcome);
    lock.lock();
    if (!outcome.failure) last_durable_ = outcome.step;
    outcome_ = std::move(outcome);
    contents_.reset();
    changed_.notify_all();
  }
}

}  // namespace fulldeck::checkpoint
