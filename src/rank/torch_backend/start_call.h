// How every collective of the backend starts. Private to the sources of SharedMemoryBackend.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "torch_backend/shared_memory_backend.h"

namespace fulldeck::torch_backend {

// More than a year would overflow when added to the clock. No timeout at all is not supported.
inline std::chrono::milliseconds ClampTimeout(std::chrono::milliseconds timeout) {
  return std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds(1), std::chrono::hours(24 * 365));
}

template <typename CallOptions>
c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::Start(c10d::OpType type, const char* name,
                                                          const std::vector<at::Tensor>& inputs,
                                                          std::vector<at::Tensor> outputs, const CallOptions& options,
                                                          std::shared_ptr<Operands> operands, Body body) {
  const auto alive = core();
  operands->Seal();
  auto work = c10::make_intrusive<CollectiveWork>(rank_, WorkTitle{type, Title(name)}, inputs, std::move(outputs),
                                                  sequence_.fetch_add(1, std::memory_order_relaxed) + 1);
  work->SetAborter([weak = std::weak_ptr(alive->route), rank = rank_] {
    if (const auto route = weak.lock()) route->Abort("rank " + std::to_string(rank) + " aborted a call.");
  });
  const auto timeout = ClampTimeout(minor::TimeoutOf(options, timeout_.load()));
  const bool finds_nonfinite = type == c10d::OpType::ALLREDUCE && request_.check_finite && alive->multi_node == nullptr;
  alive->queue->Submit(
      work,
      // The queue holds the work as long as the call runs.
      [alive, operands = std::move(operands), body = std::move(body), timeout, finds_nonfinite, raw = work.get()] {
        alive->route->SetTimeout(timeout);
        body(*alive->route, *operands);
        if (finds_nonfinite) raw->SetNonfinite(LastNonfinite(*alive));
        operands->Deliver();
      },
      minor::CallerWaits(options) && !IsCoalescing());
  return Collect(work);
}

}  // namespace fulldeck::torch_backend
