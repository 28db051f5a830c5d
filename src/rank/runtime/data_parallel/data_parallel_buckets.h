// The gradient buckets while they are reduced over the ranks: starts each bucket's all-reduce as soon as the Reducer
// provides it, counts, measures the time, and finds non-finite gradients. It does not divide gradients into buckets;
// the Reducer does.
//
// Threads: those of the backward pass, one call at a time (the Reducer holds its lock); otherwise the training loop's,
// which waits for backward. So only reductions_ is atomic.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "fulldeck/data_parallel.h"

namespace fulldeck::runtime {

class Buckets : public std::enable_shared_from_this<Buckets> {
 public:
  // `completed` is called when all buckets of a backward pass are reduced.
  Buckets(Team team, const std::vector<at::Tensor>& parameters, std::vector<std::string> names, bool check_finite,
          std::function<void()> completed);

  // As a communication hook for the Reducer.
  std::unique_ptr<c10d::CommHookInterface> MakeHook();

  std::uint64_t reductions() const { return reductions_.load(std::memory_order_relaxed); }
  std::size_t count() const { return count_; }
  std::optional<std::chrono::nanoseconds> wait() const { return wait_; }
  // For the last pass; `step` is copied to the result.
  std::optional<NonfiniteGradient> FindNonfinite(std::uint64_t step);
  // Call it when the gradients have been used.
  void Forget();

 private:
  class Hook;
  // The result of scanning one bucket: available immediately on the CPU, later on a card.
  struct ScanResult {
    std::optional<std::uint64_t> element;
    at::Tensor flag;  // on the card: whether all values are finite; undefined: scanned on the CPU
  };
  struct Bucket {
    c10::intrusive_ptr<c10d::Work> work;
    std::optional<c10d::GradBucket> gradients;  // only if check_finite, for names
    ScanResult given;                           // this rank's own gradients
    ScanResult reduced;
  };

  c10::intrusive_ptr<c10::ivalue::Future> Start(c10d::GradBucket& bucket);
  void Finish(at::Tensor result);
  static ScanResult Scan(const at::Tensor& bucket);
  static std::optional<std::uint64_t> Settle(const ScanResult& scan, const at::Tensor& bucket);
  NonfiniteGradient Named(const Bucket& bucket, std::uint64_t element, int rank, std::uint64_t step) const;

  const Team team_;
  const std::vector<std::string> names_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
  const bool check_finite_;
  const std::function<void()> completed_;
  const bool averages_;       // the backend supports AVG: one pass less, and a single rounding
  const bool host_can_time_;  // waiting for a call implies that its data has arrived
  bool backend_checks_ = false;

  std::atomic<std::uint64_t> reductions_{0};  // relaxed; any thread may read it, orders nothing
  std::size_t count_ = 0;
  std::size_t finished_ = 0;
  std::vector<Bucket> buckets_;
  std::uint64_t pass_ = 0;
  std::chrono::steady_clock::time_point last_start_;
  std::optional<std::chrono::steady_clock::time_point> own_work_done_;
  std::optional<std::chrono::nanoseconds> wait_;
};

}  // namespace fulldeck::runtime
