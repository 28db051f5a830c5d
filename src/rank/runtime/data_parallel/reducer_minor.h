// Everything of data parallel training that differs between torch minor versions (2.6 to 2.13): how a c10d::Reducer is
// created, the type of a gradient accumulator, autocast. No other file of it depends on the version.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fulldeck::runtime {

struct ReducerRequest {
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
  std::vector<bool> sparse;  // whether its gradient is sparse
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::int64_t bucket_bytes = 0;
  std::int64_t first_bucket_bytes = 0;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
};

// Creates buckets as torch's DistributedDataParallel does: in reverse order, because gradients arrive in roughly that
// order. If the Reducer rebuilds them after the first step (not with find_unused_parameters), there is one bucket per
// type until then. Gradients that are views of a bucket look like independent tensors to autograd: LibTorch's
// Optimizer::zero_grad detaches them in place, which is an error for a view that autograd knows.
std::shared_ptr<c10d::Reducer> MakeReducer(const ReducerRequest& request);
void RebuildBuckets(c10d::Reducer& reducer);

// Calls back whenever a gradient was accumulated into one of the parameters: in the thread of the backward pass, and
// before the Reducer if it was created first. Must live as long as the calls are wanted.
class GradientWatch {
 public:
  GradientWatch(const std::vector<at::Tensor>& parameters, const std::function<void(std::size_t index)>& seen);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

 private:
  // shared_ptr<Node> or intrusive_ptr<Node>. Held here because the parameter only holds a weak reference.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<std::pair<Accumulator, std::uintptr_t>> hooks_;
};

// The type that autocast uses on this device type, and whether it is enabled, in this thread.
struct AutocastState {
  bool enabled = false;
  at::ScalarType dtype = at::kFloat;
};
AutocastState EnterAutocast(c10::DeviceType device, AutocastState wanted);  // returns the previous state
void LeaveAutocast(c10::DeviceType device, const AutocastState& before);

}  // namespace fulldeck::runtime
