// One call of the backend as torch sees it: a c10d::Work with a future, a single completion, and the profiler's range
// from the call to its end. It does not run the call; see call_queue.h.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "torch_backend/backend.h"
#include "torch_backend/torch_minor.h"

namespace fulldeck::torch_backend {

// How to create a Work.
struct WorkTitle {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* profiling_title = nullptr;  // "fulldeck:all_reduce"; never freed. nullptr: not profiled
};

// Any thread may wait, query and get the future. Finish is called once, by the thread that ran the call.
class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(int rank, WorkTitle title, const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
                 std::uint64_t sequence);
  ~CollectiveWork() override = default;

  // All three report completion before the callbacks of the future run, so a thread that learned of it through the
  // future, in a callback or after a wait, also sees it here. wait() returns after the callbacks.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // A future of WorkResult that never holds an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  float getDuration() const override;
  void abort() override;
  void synchronize() override {}  // a completed call is complete on the device too
  int sourceRank() const override;

  // `error` null: success. Runs the callbacks of the future in this thread, then wakes the waiters.
  void Finish(std::exception_ptr error);
  // Finish has woken the waiters: a wait would not block.
  bool WaitIsOver() { return c10d::Work::isCompleted(); }
  // Call it before any other thread has the work. wait() calls `driver` first: it may run or advance the call in the
  // waiting thread. It returns when the call is done, when it cannot help, or after the timeout (kNoTimeout: none).
  // abort() calls `aborter`.
  void SetDriver(std::function<void(std::chrono::milliseconds timeout)> driver) { driver_ = std::move(driver); }
  void SetAborter(std::function<void()> aborter) { aborter_ = std::move(aborter); }
  // Called by the call itself, before Finish.
  void SetNonfinite(const NonfiniteRecord& record) { nonfinite_ = record; }
  const std::optional<NonfiniteRecord>& nonfinite() const { return nonfinite_; }
  void SetSourceRank(int rank) { source_rank_.store(rank, std::memory_order_relaxed); }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> MakeFuture(const c10::TypePtr& type) const;
  void Complete(c10::ivalue::Future& future);

  const std::vector<at::Tensor> outputs_;
  const std::uint64_t sequence_;
  std::function<void(std::chrono::milliseconds)> driver_;
  std::function<void()> aborter_;
  std::atomic<int> source_rank_{-1};
  std::optional<NonfiniteRecord> nonfinite_;  // written before Finish locks end_mutex_, read after completion was seen
                                              // under it
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();

  mutable std::mutex end_mutex_;  // guards the fields below
  bool ended_known_ = false;
  std::chrono::steady_clock::time_point ended_;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;         // created on first use
  c10::intrusive_ptr<c10::ivalue::Future> result_future_;  // created on first use
};

// The outcome of several calls as one: done when all are done; fails with the first failure in their order.
class CoalescedWork : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override {}
  void abort() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace fulldeck::torch_backend
