#include "torch_backend/work.h"

#include <algorithm>
#include <utility>

#include "torch_backend/tensor_staging.h"

namespace fulldeck::torch_backend {
namespace {

std::optional<std::vector<at::Tensor>> Profiled(const WorkTitle& title, const std::vector<at::Tensor>& inputs) {
  if (title.profiling_title == nullptr) return std::nullopt;
  return inputs;
}

// The devices whose streams a future's callbacks need. Other devices may have no events at all.
std::vector<c10::Device> DevicesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (!CopiesOverlap(tensor.device())) continue;
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) devices.push_back(tensor.device());
  }
  return devices;
}

c10d::WorkResult ResultOf(const std::exception_ptr& error) {
  return error ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
}

}  // namespace

CollectiveWork::CollectiveWork(int rank, WorkTitle title, const std::vector<at::Tensor>& inputs,
                               std::vector<at::Tensor> outputs, std::uint64_t sequence)
    : c10d::Work(rank, title.type, title.profiling_title, Profiled(title, inputs)),
      outputs_(std::move(outputs)),
      sequence_(sequence) {}

bool CollectiveWork::isCompleted() {
  const std::lock_guard lock(end_mutex_);
  return ended_known_;
}

bool CollectiveWork::isSuccess() const {
  return exception() == nullptr;
}

std::exception_ptr CollectiveWork::exception() const {
  const std::lock_guard lock(end_mutex_);
  return error_;
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  if (driver_ && !WaitIsOver()) driver_(timeout);
  return c10d::Work::wait(timeout);
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::MakeFuture(const c10::TypePtr& type) const {
  return c10::make_intrusive<c10::ivalue::Future>(type, DevicesOf(outputs_));
}

void CollectiveWork::Complete(c10::ivalue::Future& future) {
  if (error_) {
    future.setError(error_);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  std::unique_lock lock(end_mutex_);
  if (future_) return future_;
  future_ = MakeFuture(c10::ListType::create(c10::TensorType::get()));
  const auto future = future_;
  if (!ended_known_) return future;
  lock.unlock();
  Complete(*future);
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFutureResult() {
  const std::lock_guard lock(end_mutex_);
  if (!result_future_) {
    result_future_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
    if (ended_known_) result_future_->markCompleted(c10::IValue(static_cast<std::uint8_t>(ResultOf(error_))));
  }
  return result_future_;
}

float CollectiveWork::getDuration() const {
  const std::lock_guard lock(end_mutex_);
  TORCH_CHECK(ended_known_, "fulldeck: a call has no duration before it is done.");
  return std::chrono::duration<float, std::milli>(ended_ - begun_).count();
}

void CollectiveWork::abort() {
  if (aborter_) aborter_();
}

int CollectiveWork::sourceRank() const {
  const int rank = source_rank_.load(std::memory_order_relaxed);
  TORCH_CHECK(rank >= 0, "fulldeck: only a receive that is done has a source rank.");
  return rank;
}

void CollectiveWork::Finish(std::exception_ptr error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  c10::intrusive_ptr<c10::ivalue::Future> result_future;
  {
    const std::lock_guard lock(end_mutex_);
    ended_known_ = true;
    error_ = error;
    future = future_;
    result_future = result_future_;
    ended_ = std::chrono::steady_clock::now();
  }
  // Complete the futures before waking the waiters, so that after wait() the future is done too.
  if (future) Complete(*future);
  if (result_future) result_future->markCompleted(c10::IValue(static_cast<std::uint8_t>(ResultOf(error))));
  finish(std::move(error));
}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_) {
    if (std::exception_ptr error = work->exception()) return error;
  }
  return nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const auto& work : works_) {
    std::chrono::milliseconds left = kNoTimeout;
    if (timeout != kNoTimeout) {
      left =
          std::max(std::chrono::milliseconds(1),
                   std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()));
    }
    work->wait(left);
  }
  return true;
}

void CoalescedWork::abort() {
  for (const auto& work : works_) work->abort();
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> results;
  for (const auto& work : works_) {
    for (at::Tensor& tensor : work->result()) results.push_back(std::move(tensor));
  }
  return results;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  auto self = c10::intrusive_ptr<CoalescedWork>::unsafe_reclaim_from_nonowning(this);
  return c10::collectAll(futures)->then(
      [self](c10::ivalue::Future& all) {
        if (all.hasError()) std::rethrow_exception(all.exception_ptr());
        return c10::IValue(self->result());
      },
      c10::ListType::create(c10::TensorType::get()));
}

std::uint64_t CoalescedWork::getSequencenumber() const {
  return works_.empty() ? 0 : works_.back()->getSequencenumber();
}

}  // namespace fulldeck::torch_backend
