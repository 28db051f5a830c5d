// Data parallel training: every rank holds a copy of the module, computes gradients from its part of the batch, and all
// ranks take the same step with the mean of the gradients. What torch's DistributedDataParallel is to Python; LibTorch
// has none.
//
//   auto net = std::make_shared<Net>();
//   net->to(session->device());
//   fulldeck::DataParallel model(net, *session);         // the same start on all ranks; a Team does too
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   for (...) {
//     optimizer.zero_grad();
//     loss(model.Forward(images), labels).backward();    // gradients are averaged while backward still runs
//     model.Step(optimizer);                             // refuses to train wrongly
//   }
//
// It refuses (Refusal, on every rank) a module on another device than the team's, modules that are not the same on all
// ranks, a batch on another device, and a step in which nothing was reduced. It stops (Error) before a step with a
// gradient that is not finite, and when the ranks' parameters have come apart.
//
// All ranks make the same calls in the same order. Threads: the training loop's alone. docs/data-parallel.md has the
// rest: what is communicated when, and what each check costs.
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
  // Some parameters have no part in some steps. Costs a walk through the graph in each forward; without it such a step
  // is refused.
  bool find_unused_parameters = false;
  // The graph is the same in every step: unused parameters are learnt in the first one, at no further cost.
  bool static_graph = false;
  // Buffers (running statistics) are copied from rank 0 before each forward that trains.
  bool broadcast_buffers = true;
  // Gradients are views of the buckets: one copy less, and as much memory less.
  bool gradient_as_bucket_view = true;
  // Gradients are reduced in buckets of about these sizes; the first is smaller, so that the work begins early.
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;
  // After wrapping, the ranks' parameters and buffers are compared by hash.
  bool check_parameters = true;
  // Gradients are looked through for NaN and infinity. Costs nothing in a `fulldeck` group that was made with
  // check_finite (the reduction looks); else two readings of the gradients.
  bool check_finite = true;
  // The ranks' parameters are compared by hash, an equal part in each of this many steps; 0: never.
  int hash_every = 50;
};

// A gradient with NaN or infinity in it.
struct NonfiniteGradient {
  int rank = -1;               // the first whose part was not finite; -1: each was, and their sum overflowed
  std::string parameter;       // its name in the module
  std::uint64_t element = 0;   // the first, as it lies in memory
  std::uint64_t elements = 0;  // of the parameter
  std::uint64_t step = 0;      // the step that it was for; the first is 1
};

// Where tensors are in what goes into and comes out of a module: tensors, and vectors, arrays, tuples, pairs, maps and
// optionals of them. For a type of your own:
//   template <> struct fulldeck::TensorsIn<Prediction> {
//     template <typename Visit> static void In(Prediction& value, Visit&& visit) { visit(value.logits); }
//   };
template <typename T>
struct TensorsIn;

// Everything of DataParallel that does not depend on the module's type; what else takes a wrapped module (clipping,
// scaler) takes this.
class FULLDECK_RUNTIME_API DataParallelCore {
 public:
  // A collective. Copies parameters and buffers from rank 0 to all.
  DataParallelCore(std::shared_ptr<torch::nn::Module> module, const Team& team,
                   const DataParallelOptions& options = {});
  // The same with a session, which must outlive it: when the ranks make a new group it goes on with that one, and the
  // monitor sees what communication cost and that the parameters are equal.
  DataParallelCore(std::shared_ptr<torch::nn::Module> module, Session& session,
                   const DataParallelOptions& options = {});
  ~DataParallelCore();
  DataParallelCore(const DataParallelCore&) = delete;
  DataParallelCore& operator=(const DataParallelCore&) = delete;

  // Runs a forward pass that is not called `forward`: whatever it returns that has tensors is what backward starts
  // from.
  template <typename Callable, typename... Args>
  auto Run(Callable&& forward, Args&&... args);

  // While one lives, backward adds gradients up and reduces nothing: for accumulation over several micro-batches.
  // Forward and backward both belong inside. May be nested.
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

  // CheckReduced, CheckFinite, CheckOptimizer, optimizer.step(), StepDone.
  void Step(torch::optim::Optimizer& optimizer);

  // For a program that calls the optimizer itself, before it does. Refuses (Refusal) when there are gradients that were
  // not reduced, or none at all, since the last step: backward under NoSync alone, forward around this wrapper, a loss
  // that leaves parameters out.
  void CheckReduced();
  // Throws an Error that names rank, parameter and step when the reduced gradients are not finite.
  void CheckFinite();
  // Refuses an optimizer that holds none of the parameters.
  void CheckOptimizer(torch::optim::Optimizer& optimizer) const;
  // What CheckFinite looks at: of the last backward that reduced. With a backend that does not look itself it waits for
  // the device, and when something is found it is a collective.
  std::optional<NonfiniteGradient> nonfinite();
  // After the optimizer (or after a step that was left out, on all ranks alike): counts it, and hashes a part of the
  // parameters. Every hash_every-th time a collective, which throws an Error when the ranks differ.
  void StepDone();

  // Goes on with another group of the same ranks, after the old one has failed (Session::Regroup). Clears the
  // gradients. A collective.
  void UseTeam(const Team& team);

  torch::nn::Module& module() { return *module_; }
  const Team& team() const;
  const DataParallelOptions& options() const;
  // Those that are reduced, each once, by name. They may not be exchanged after wrapping.
  const std::vector<at::Tensor>& parameters() const;
  const std::vector<std::string>& parameter_names() const;

  std::uint64_t steps() const;       // StepDone's calls
  std::uint64_t reductions() const;  // all-reduces of buckets so far
  std::size_t buckets() const;       // reduced in the last backward
  // How long the last reducing backward waited for the other ranks after its own gradients were done. Nothing: none
  // yet, or the backend waits on the device (NCCL), where the host cannot tell.
  std::optional<std::chrono::nanoseconds> communication_wait() const;
  // Of the parameters, as last compared over the ranks, for the rank board; 0: not yet.
  std::uint64_t parameters_fingerprint() const;

  struct Impl;  // for the sources

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

// Is the whole batch on this device? A Refusal names the tensors that are not. Numbers (tensors without dimensions) may
// be on the host, as torch allows.
FULLDECK_RUNTIME_API void CheckBatch(const std::vector<at::Tensor>& batch, const c10::Device& device);

// Where the module's parameters are, and what that means for wrapping it: device of the module and of its first
// parameter, current devices, the first five parameters, counts, environment, verdict and cure. Some lines of text, for
// a log. Changes nothing, talks to nobody, and does not throw whatever the module is like.
FULLDECK_RUNTIME_API std::string PlacementReport(const torch::nn::Module& module, const Team& team);

// ---- what is in a value ----

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
  // An argument of a type that is not known is the module's own affair.
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
