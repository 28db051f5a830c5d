// Data parallel training: every rank holds a copy of the module and computes gradients from its share of the batch, and
// all ranks take the same step with the mean of the gradients. The C++ counterpart of torch's DistributedDataParallel,
// which LibTorch lacks. Not for sharded or pipelined models.
//
//   auto net = std::make_shared<Net>();
//   net->to(session->device());
//   fulldeck::DataParallel model(net, *session);         // same initial weights on all ranks; also takes a Team
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   for (...) {
//     optimizer.zero_grad();
//     loss(model.Forward(images), labels).backward();    // gradients are averaged while backward still runs
//     model.Step(optimizer);                             // throws rather than train wrongly
//   }
//
// It refuses (Refusal, on every rank) a module on a device other than the team's, modules that differ between ranks, a
// batch on another device, and a step in which nothing was reduced. It throws Error before a step with a non-finite
// gradient, and when the ranks' parameters have diverged.
//
// All ranks make the same calls in the same order. Threads: call it only from the training loop's thread.
// docs/data-parallel.md describes what is communicated when, and what each check costs.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/team.h"

namespace torch::optim {
class Optimizer;
}

namespace fulldeck {

class Session;

struct DataParallelOptions {
  // Some parameters are unused in some steps. Costs a walk through the graph in each forward; without it, such a step
  // is refused.
  bool find_unused_parameters = false;
  // The graph is the same in every step: unused parameters are found in the first step, at no further cost.
  bool static_graph = false;
  // Copy buffers (running statistics) from rank 0 before each training forward.
  bool broadcast_buffers = true;
  // Gradients are views into the buckets, which saves one copy and its memory.
  bool gradient_as_bucket_view = true;
  // Approximate sizes of the buckets in which gradients are reduced. The first is smaller, so that communication starts
  // early.
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;
  // Compare the ranks' parameters and buffers by hash after wrapping.
  bool check_parameters = true;
  // Check gradients for NaN and infinity. Free in a `fulldeck` group that was created with check_finite (the reduction
  // checks); otherwise it costs two passes over the gradients.
  bool check_finite = true;
  // Compare the ranks' parameters by hash, an equal share of them in each of this number of steps; 0: never.
  int hash_every = 50;
};

// A gradient that contains NaN or infinity.
struct NonfiniteGradient {
  int rank = -1;               // the first whose own gradient was non-finite; -1: each was finite, and their sum
                               // overflowed
  std::string parameter;       // its name in the module
  std::uint64_t element = 0;   // the first non-finite one, as an index in memory order
  std::uint64_t elements = 0;  // of the parameter
  std::uint64_t step = 0;      // the training step, from 1
};

// How to find the tensors in the arguments and results of a module: tensors, and vectors, arrays, tuples, pairs, maps
// and optionals of them. For your own type:
//   template <> struct fulldeck::TensorsIn<Prediction> {
//     template <typename Visit> static void In(Prediction& value, Visit&& visit) { visit(value.logits); }
//   };
template <typename T>
struct TensorsIn;

// The part of DataParallel that does not depend on the module's type. Functions that take any wrapped module (clipping,
// scaler) take this.
class FULLDECK_RUNTIME_API DataParallelCore {
 public:
  // A collective. Copies parameters and buffers from rank 0 to all.
  DataParallelCore(std::shared_ptr<torch::nn::Module> module, const Team& team,
                   const DataParallelOptions& options = {});
  // The same with a session, which must outlive it. When the ranks create a new group, this object switches to it. The
  // monitor shows the communication time and that the parameters are equal.
  DataParallelCore(std::shared_ptr<torch::nn::Module> module, Session& session,
                   const DataParallelOptions& options = {});
  ~DataParallelCore();
  DataParallelCore(const DataParallelCore&) = delete;
  DataParallelCore& operator=(const DataParallelCore&) = delete;

  // Runs a forward pass that is not called `forward`. Backward starts from the tensors in whatever it returns.
  template <typename Callable, typename... Args>
  auto Run(Callable&& forward, Args&&... args);

  // While an instance lives, backward accumulates gradients and reduces nothing: for accumulation over several
  // micro-batches. Both forward and backward must be inside. May be nested.
  class FULLDECK_RUNTIME_API Unsynchronised {
   public:
    explicit Unsynchronised(DataParallelCore& model);
    ~Unsynchronised();
    Unsynchronised(const Unsynchronised&) = delete;
    Unsynchronised& operator=(const Unsynchronised&) = delete;

   private:
    DataParallelCore& model_;
  };
  [[nodiscard]] Unsynchronised NoSync() { return Unsynchronised(*this); }

  // CheckReduced, CheckFinite, CheckOptimizer, optimizer.step(), StepDone, in this order.
  void Step(torch::optim::Optimizer& optimizer);

  // For a program that calls the optimizer itself; call it before. Refuses (Refusal) when, since the last step, there
  // are gradients that were not reduced, or none at all: every backward was under NoSync, forward bypassed this
  // wrapper, or the loss omits parameters.
  void CheckReduced();
  // Throws an Error that names rank, parameter and step when the reduced gradients are not finite.
  void CheckFinite();
  // Refuses an optimizer that holds none of the parameters.
  void CheckOptimizer(torch::optim::Optimizer& optimizer) const;
  // What CheckFinite checks: the result of the last backward that reduced. If the backend does not check by itself,
  // this waits for the device, and is a collective when something is found.
  std::optional<NonfiniteGradient> nonfinite();
  // Call after the optimizer step (or after a step that was skipped on all ranks): counts the step and hashes a share
  // of the parameters. Every hash_every-th call is a collective, which throws an Error when the ranks differ.
  void StepDone();

  // Switches to another group of the same ranks after the old one has failed (Session::Regroup). Clears the gradients.
  // A collective.
  void UseTeam(const Team& team);

  torch::nn::Module& module() { return *module_; }
  const Team& team() const;
  const DataParallelOptions& options() const;
  // The parameters that are reduced, each once, by name. Do not replace them after wrapping.
  const std::vector<at::Tensor>& parameters() const;
  const std::vector<std::string>& parameter_names() const;

  std::uint64_t steps() const;       // number of StepDone calls
  std::uint64_t reductions() const;  // all-reduces of buckets so far
  std::size_t buckets() const;       // reduced in the last backward
  // How long the last reducing backward waited for the other ranks after its own gradients were done. Nullopt: no such
  // backward yet, or the backend waits on the device (NCCL), which the host cannot measure.
  std::optional<std::chrono::nanoseconds> communication_wait() const;
  // Hash of the parameters as last compared over the ranks, for the rank board; 0: not compared yet.
  std::uint64_t parameters_fingerprint() const;

  struct Impl;  // internal

 protected:
  // Refuses tensors that are not on the team's device.
  void BeginForward(const std::vector<const at::Tensor*>& inputs);
  void EndForward(const std::vector<at::Tensor*>& outputs);

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<Impl> impl_;
  Session* session_ = nullptr;
  std::shared_ptr<void> regroup_subscription_;
};

template <typename Net>
class DataParallel : public DataParallelCore {
 public:
  explicit DataParallel(std::shared_ptr<Net> net, const Team& team, const DataParallelOptions& options = {})
      : DataParallelCore(net, team, options), net_(std::move(net)) {}
  explicit DataParallel(std::shared_ptr<Net> net, Session& session, const DataParallelOptions& options = {})
      : DataParallelCore(net, session, options), net_(std::move(net)) {}
  explicit DataParallel(const torch::nn::ModuleHolder<Net>& net, const Team& team,
                        const DataParallelOptions& options = {})
      : DataParallel(net.ptr(), team, options) {}
  explicit DataParallel(const torch::nn::ModuleHolder<Net>& net, Session& session,
                        const DataParallelOptions& options = {})
      : DataParallel(net.ptr(), session, options) {}

  // The module's forward. Every tensor in the arguments must be on the team's device.
  template <typename... Args>
  auto Forward(Args&&... args) {
    return Run([this](auto&&... inner) { return net_->forward(std::forward<decltype(inner)>(inner)...); },
               std::forward<Args>(args)...);
  }

  Net& operator*() { return *net_; }
  Net* operator->() { return net_.get(); }

 private:
  std::shared_ptr<Net> net_;
};

// Checks that the whole batch is on this device. A Refusal names the tensors that are not. Scalars (zero-dimensional
// tensors) may be on the CPU, as torch allows.
FULLDECK_RUNTIME_API void CheckBatch(const std::vector<at::Tensor>& batch, const c10::Device& device);

// Where the module's parameters are, and what that means for wrapping it: device of the module and of its first
// parameter, current devices, the first five parameters, counts, environment, verdict and fix. Several lines of text,
// for a log. Changes nothing, does not communicate, and never throws.
FULLDECK_RUNTIME_API std::string PlacementReport(const torch::nn::Module& module, const Team& team);

// ---- how to find the tensors in a value ----

template <>
struct TensorsIn<at::Tensor> {
  template <typename Tensor, typename Visit>
  static void In(Tensor& value, Visit&& visit) {
    visit(value);
  }
};
namespace detail {
template <typename T>
concept HasTensors = requires {
  sizeof(TensorsIn<std::remove_cvref_t<T>>);
};
template <typename T>
concept PlainValue = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;

template <typename T, typename Visit>
void VisitTensors(T& value, Visit&& visit) {
  TensorsIn<std::remove_cv_t<T>>::In(value, visit);
}
struct VisitElements {
  template <typename Container, typename Visit>
  static void In(Container& values, Visit&& visit) {
    for (auto& value : values) VisitTensors(value, visit);
  }
};
struct VisitParts {
  template <typename Tuple, typename Visit>
  static void In(Tuple& values, Visit&& visit) {
    std::apply([&](auto&... value) { (VisitTensors(value, visit), ...); }, values);
  }
};
struct VisitMapped {
  template <typename Map, typename Visit>
  static void In(Map& values, Visit&& visit) {
    for (auto& entry : values) VisitTensors(entry.second, visit);
  }
};
}  // namespace detail

template <detail::PlainValue T>
struct TensorsIn<T> {
  template <typename Value, typename Visit>
  static void In(Value&, Visit&&) {}
};
template <typename T>
struct TensorsIn<std::vector<T>> : detail::VisitElements {};
template <typename T, std::size_t size>
struct TensorsIn<std::array<T, size>> : detail::VisitElements {};
template <typename... T>
struct TensorsIn<std::tuple<T...>> : detail::VisitParts {};
template <typename First, typename Second>
struct TensorsIn<std::pair<First, Second>> : detail::VisitParts {};
template <typename Key, typename T>
struct TensorsIn<std::map<Key, T>> : detail::VisitMapped {};
template <typename Key, typename T>
struct TensorsIn<std::unordered_map<Key, T>> : detail::VisitMapped {};
template <typename T>
struct TensorsIn<std::optional<T>> {
  template <typename Optional, typename Visit>
  static void In(Optional& value, Visit&& visit) {
    if (value) detail::VisitTensors(*value, visit);
  }
};

template <typename Callable, typename... Args>
auto DataParallelCore::Run(Callable&& forward, Args&&... args) {
  std::vector<const at::Tensor*> inputs;
  // Arguments of unknown types are passed through unchecked.
  const auto look = [&](const auto& argument) {
    if constexpr (detail::HasTensors<decltype(argument)>)
      detail::VisitTensors(argument, [&](const at::Tensor& tensor) { inputs.push_back(&tensor); });
  };
  (look(args), ...);
  BeginForward(inputs);
  auto output = std::forward<Callable>(forward)(std::forward<Args>(args)...);
  static_assert(detail::HasTensors<decltype(output)>,
                "DataParallel cannot see where the tensors are in what this module returns: specialise "
                "fulldeck::TensorsIn for its type.");
  std::vector<at::Tensor*> outputs;
  detail::VisitTensors(output, [&](at::Tensor& tensor) { outputs.push_back(&tensor); });
  EndForward(outputs);
  return output;
}

}  // namespace fulldeck
