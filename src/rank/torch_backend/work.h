// One call of the backend as torch sees it: c10d::Work with a future, an end that is told exactly once, and the
// profiler's range from the call to its end.
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

// What a Work is made from.
struct WorkTitle {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* profiling_title = nullptr;  // "fulldeck:all_reduce"; lives as long as the process. nullptr: not profiled
};

// Any thread may wait, ask and take the future; Finish is called once, by whoever did the call.
class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(int rank, WorkTitle title, const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
                 std::uint64_t sequence);
  ~CollectiveWork() override = default;

  // All three tell the end before the callbacks of the future run: whoever learnt of it through the future, in a
  // callback or after waiting, finds it here too. wait() returns after the callbacks.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // A future of WorkResult that is never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  float getDuration() const override;
  void abort() override;
  void synchronize() override {}  // a call that is done is done on the device too
  int sourceRank() const override;

  // `error` null: well done. Runs the callbacks of the future in this thread, then wakes the waiters.
  void Finish(std::exception_ptr error);
  // Finish has woken the waiters: a wait would not block.
  bool WaitIsOver() { return c10d::Work::isCompleted(); }
  // Before anybody else has it. `driver` is called by wait() first: it may do or advance the call in the waiting
  // thread, and returns when the call is done, when it cannot help, or after the time-out (kNoTimeout: none).
  // `aborter`: by abort().
  void SetDriver(std::function<void(std::chrono::milliseconds timeout)> driver) { driver_ = std::move(driver); }
  void SetAborter(std::function<void()> aborter) { aborter_ = std::move(aborter); }
  // By the call itself, before Finish.
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
  std::optional<NonfiniteRecord> nonfinite_;  // written before Finish takes end_mutex_, read after the end was seen
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();

  mutable std::mutex end_mutex_;  // of the fields below
  bool ended_known_ = false;
  std::chrono::steady_clock::time_point ended_;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;         // made when somebody asks
  c10::intrusive_ptr<c10::ivalue::Future> result_future_;  // likewise
};

// The outcome of several calls as one: done when all are, failed with the first failure in their order.
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
