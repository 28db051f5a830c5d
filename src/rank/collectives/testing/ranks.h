// The members of a group inside a test: as threads of this process, which do the same thing concurrently, or as
// processes, which can be killed. All waits have a timeout.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collectives/group.h"

namespace fulldeck::testing {

// A name that no other group of any test on this machine has.
inline std::string FreshName(const std::string& what) {
  static std::atomic<int> number{0};
  return what + "-" + std::to_string(getpid()) + "-" + std::to_string(number.fetch_add(1));
}

// Options of one rank: those of `common`, with a new name if it has none.
inline collectives::GroupOptions OptionsOf(collectives::GroupOptions common, int rank, int size) {
  common.rank = rank;
  common.size = size;
  if (common.key.empty()) common.key = "the key of the test";
  return common;
}

// One line of text per error, with the rank before it.
inline std::string Join(const std::vector<std::string>& by_rank) {
  std::string text;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (!by_rank[rank].empty()) text += "rank " + std::to_string(rank) + ": " + by_rank[rank] + "\n";
  }
  return text;
}

// `size` threads with a Group each. They wait for work between two calls of Run, and exit when this object is
// destroyed.
class RankThreads {
 public:
  using Body = std::function<std::string(collectives::Group& group)>;  // "": no error

  explicit RankThreads(int size, collectives::GroupOptions common = {},
                       base::Duration timeout = std::chrono::seconds(300))
      : timeout_(timeout), groups_(static_cast<std::size_t>(size)), errors_(static_cast<std::size_t>(size)) {
    if (common.name.empty()) common.name = FreshName("threads");
    for (int rank = 0; rank < size; ++rank) {
      threads_.emplace_back([this, rank, options = OptionsOf(common, rank, size)] { Live(rank, options); });
    }
    WaitForAll("meeting");
    failure_ = Join(errors_);
  }
  ~RankThreads() {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
      ++round_;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  // Why there is no group; "" if there is one.
  const std::string& failure() const { return failure_; }
  // On the test's own thread: between two calls of Run, or for calls that are thread safe.
  collectives::Group& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }

  // Runs `body` on all threads concurrently and waits for all of them. Returns their errors, "" if none. A thread that
  // does not return ends the whole program, because a thread cannot be killed.
  std::string Run(const Body& body) {
    if (!failure_.empty()) return failure_;
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      back_ = 0;
      ++round_;
    }
    changed_.notify_all();
    WaitForAll("the test");
    return Join(errors_);
  }

 private:
  void Live(int rank, const collectives::GroupOptions& options) {
    const auto index = static_cast<std::size_t>(rank);
    collectives::Group::CreateResult made = collectives::Group::Create(options);
    groups_[index] = std::move(made.group);
    errors_[index] = made.status.ok() ? "" : made.status.text();
    std::uint64_t done = 0;
    while (true) {
      std::unique_lock lock(mutex_);
      ++back_;
      all_back_.notify_all();
      changed_.wait(lock, [&] { return round_ > done; });
      done = round_;
      if (leaving_) break;
      lock.unlock();
      errors_[index] = (*body_)(*groups_[index]);
    }
    groups_[index].reset();
  }

  void WaitForAll(const char* what) {
    std::unique_lock lock(mutex_);
    if (all_back_.wait_for(lock, timeout_, [&] { return back_ == threads_.size(); })) return;
    std::fprintf(stderr, "%zu of %zu threads did not come back from %s\n", threads_.size() - back_, threads_.size(),
                 what);
    std::abort();
  }

  base::Duration timeout_;
  std::vector<std::unique_ptr<collectives::Group>> groups_;
  std::vector<std::string> errors_;  // written by each thread before it returns
  std::string failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable all_back_;
  const Body* body_ = nullptr;
  std::uint64_t round_ = 0;
  std::size_t back_ = 0;
  bool leaving_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fulldeck::testing
