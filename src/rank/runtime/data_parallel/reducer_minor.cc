#include "runtime/data_parallel/reducer_minor.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace fulldeck::runtime {
namespace {

// 2.6 takes ten arguments, the last being skip_all_reduce_unused_params. Later versions added use_python_reducer, then
// the list of sizes, then batched_grad_copy, which has a default.
template <typename Reducer, typename... Common>
std::shared_ptr<Reducer> Construct(std::vector<std::int64_t> sizes, Common... common) {
  constexpr bool kSkipUnused = false;
  constexpr bool kPythonReducer = false;
  if constexpr (std::is_constructible_v<Reducer, Common..., bool, bool, std::vector<std::int64_t>>) {
    return std::make_shared<Reducer>(std::move(common)..., kSkipUnused, kPythonReducer, std::move(sizes));
  } else if constexpr (std::is_constructible_v<Reducer, Common..., bool, bool>) {
    return std::make_shared<Reducer>(std::move(common)..., kSkipUnused, kPythonReducer);
  } else if constexpr (std::is_constructible_v<Reducer, Common..., bool>) {
    return std::make_shared<Reducer>(std::move(common)..., kSkipUnused);
  } else {
    return std::make_shared<Reducer>(std::move(common)...);
  }
}

// The Reducer requires a Logger and holds a weak reference. Its data is not used.
struct WithLogger {
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};

}  // namespace

std::shared_ptr<c10d::Reducer> MakeReducer(const ReducerRequest& request) {
  const bool rebuilds = request.static_graph || !request.find_unused_parameters;
  const std::vector<std::size_t> limits =
      rebuilds ? std::vector<std::size_t>{std::numeric_limits<std::int64_t>::max()}
               : std::vector<std::size_t>{static_cast<std::size_t>(request.first_bucket_bytes),
                                          static_cast<std::size_t>(request.bucket_bytes)};
  auto [buckets, sizes] = c10d::compute_bucket_assignment_by_size(request.parameters, limits, request.sparse);
  std::reverse(buckets.begin(), buckets.end());
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t i = 0; i < request.names.size(); ++i) names.emplace(i, request.names[i]);
  const at::AutoDispatchBelowADInplaceOrView no_views;
  auto both = std::make_shared<WithLogger>();
  both->reducer =
      Construct<c10d::Reducer>({request.first_bucket_bytes, request.bucket_bytes}, request.parameters, buckets,
                               request.group, request.sparse, request.bucket_bytes, request.find_unused_parameters,
                               request.gradient_as_bucket_view, std::move(names), request.first_bucket_bytes);
  both->logger = std::make_shared<c10d::Logger>(both->reducer);
  both->reducer->set_logger(both->logger);
  return {both, both->reducer.get()};
}

void RebuildBuckets(c10d::Reducer& reducer) {
  const at::AutoDispatchBelowADInplaceOrView no_views;
  reducer.rebuild_buckets();
}

GradientWatch::GradientWatch(const std::vector<at::Tensor>& parameters, const std::function<void(std::size_t)>& seen) {
  using torch::autograd::variable_list;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
    const std::uintptr_t key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [seen, i](const variable_list& outputs, const variable_list& inputs) {
          // For a parameter behind an output that the loss does not use, the engine calls the hook without a gradient.
          if (!inputs.empty() && inputs[0].defined()) seen(i);
          return outputs;
        }));
    hooks_.emplace_back(std::move(accumulator), key);
  }
}

GradientWatch::~GradientWatch() {
  for (auto& [accumulator, key] : hooks_) accumulator->del_post_hook(key);
}

AutocastState EnterAutocast(c10::DeviceType device, AutocastState wanted) {
  const AutocastState before = {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  at::autocast::set_autocast_enabled(device, wanted.enabled);
  at::autocast::set_autocast_dtype(device, wanted.dtype);
  at::autocast::increment_nesting();
  return before;
}

void LeaveAutocast(c10::DeviceType device, const AutocastState& before) {
  // When the outermost scope ends, free the cast copies of the weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device, before.enabled);
  at::autocast::set_autocast_dtype(device, before.dtype);
}

}  // namespace fulldeck::runtime
