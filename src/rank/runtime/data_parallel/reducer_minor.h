// Everything of data parallel training that differs between the minors of torch (2.6 to 2.13): how a c10d::Reducer is
// made, what holds a gradient's accumulator, autocast. No other file of it asks which torch it is.
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
  std::vector<bool> sparse;  // does its gradient come sparse?
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::int64_t bucket_bytes = 0;
  std::int64_t first_bucket_bytes = 0;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
};

// Buckets as torch's DistributedDataParallel makes them: reversed, since gradients come in about that order. Where the
// Reducer rebuilds them after the first step (not with find_unused_parameters), one bucket a type until then.
// Gradients that are views of a bucket look like tensors of their own to autograd: LibTorch's Optimizer::zero_grad
// detaches them in place, which is an error for a view that autograd knows of.
std::shared_ptr<c10d::Reducer> MakeReducer(const ReducerRequest& request);
void RebuildBuckets(c10d::Reducer& reducer);

// Calls back whenever a gradient was added to one of the parameters: in the thread of the backward pass, before the
// Reducer if it was made first. Lives as long as the calls are wanted.
class GradientWatch {
 public:
  GradientWatch(const std::vector<at::Tensor>& parameters, const std::function<void(std::size_t index)>& seen);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

 private:
  // shared_ptr<Node> or intrusive_ptr<Node>. Held, since the parameter itself holds it weakly.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<std::pair<Accumulator, std::uintptr_t>> hooks_;
};

// The type that autocast turns to on such devices, and whether it is on, in this thread.
struct AutocastState {
  bool enabled = false;
  at::ScalarType dtype = at::kFloat;
};
AutocastState EnterAutocast(c10::DeviceType device, AutocastState wanted);  // returns what was before
void LeaveAutocast(c10::DeviceType device, const AutocastState& before);

}  // namespace fulldeck::runtime
