// The five operators that torch.nn.SyncBatchNorm consists of, which torch implements only for GPUs. As there,
// statistics are float32 (or float64 for such inputs), whatever the input type is.
#include <ATen/TensorOperators.h>
#include <ATen/ops/var_mean.h>

#include "simulator/fallback.h"
#include "simulator/native_scope.h"

namespace fulldeck::simulator {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor OrNone(const MaybeTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

at::ScalarType SumType(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::vector<std::int64_t> AllButChannels(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < input.dim(); ++i) {
    if (i != 1) dimensions.push_back(i);
  }
  return dimensions;
}

// One value per channel, shaped to broadcast over the input.
at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.numel();
  return values.reshape(shape).to(SumType(input));
}

std::tuple<at::Tensor, at::Tensor> Stats(const at::Tensor& input, double eps) {
  static OperatorCount& count = CountOf("aten::batch_norm_stats", true);
  const NativeScope scope(count, TheCardOf("batch_norm_stats", {&input}));
  const at::Tensor host = HostTwin(input);
  const auto [variance, mean] = at::var_mean(host.to(SumType(host)), AllButChannels(host), 0, false);
  return {scope.Back(mean), scope.Back((variance + eps).rsqrt())};
}

std::tuple<at::Tensor, at::Tensor> GatherStats(const at::Tensor& input, const at::Tensor& mean,
                                               const at::Tensor& invstd, const MaybeTensor& running_mean,
                                               const MaybeTensor& running_var, double momentum, double eps,
                                               const at::Tensor& counts) {
  static OperatorCount& count = CountOf("aten::batch_norm_gather_stats_with_counts", true);
  const at::Tensor kept_mean = OrNone(running_mean);
  const at::Tensor kept_var = OrNone(running_var);
  const NativeScope scope(count, TheCardOf("batch_norm_gather_stats_with_counts",
                                           {&input, &mean, &invstd, &kept_mean, &kept_var, &counts}));
  const at::Tensor means = HostTwin(mean).to(at::kDouble);
  const at::Tensor variances = HostTwin(invstd).to(at::kDouble).pow(-2) - eps;
  const at::Tensor samples = HostTwin(counts).to(at::kDouble).reshape({-1, 1});
  const at::Tensor all = samples.sum();
  const at::Tensor whole_mean = (means * samples).sum(0) / all;
  const at::Tensor squares = ((variances + (means - whole_mean).square()) * samples).sum(0);
  // Writes only the memory of the statistics; their sizes stay the same.
  if (kept_mean.defined()) HostTwin(kept_mean).mul_(1 - momentum).add_(whole_mean * momentum);
  if (kept_var.defined()) HostTwin(kept_var).mul_(1 - momentum).add_(squares / (all - 1) * momentum);
  const auto type = mean.scalar_type();
  return {scope.Back(whole_mean.to(type)), scope.Back((squares / all + eps).rsqrt().to(type))};
}

at::Tensor Normalized(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                      const at::Tensor& mean, const at::Tensor& invstd) {
  const at::Tensor host = HostTwin(input);
  at::Tensor result = (host.to(SumType(host)) - PerChannel(HostTwin(mean), host)) * PerChannel(HostTwin(invstd), host);
  if (OrNone(weight).defined()) result = result * PerChannel(HostTwin(*weight), host);
  if (OrNone(bias).defined()) result = result + PerChannel(HostTwin(*bias), host);
  return result.to(host.scalar_type());
}

at::Tensor Elements(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias, const at::Tensor& mean,
                    const at::Tensor& invstd, double) {
  static OperatorCount& count = CountOf("aten::batch_norm_elemt", true);
  const at::Tensor scale = OrNone(weight);
  const at::Tensor shift = OrNone(bias);
  const NativeScope scope(count, TheCardOf("batch_norm_elemt", {&input, &scale, &shift, &mean, &invstd}));
  return scope.Back(Normalized(input, weight, bias, mean, invstd));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> BackwardReduce(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const MaybeTensor& weight, bool of_input, bool of_weight, bool of_bias) {
  static OperatorCount& count = CountOf("aten::batch_norm_backward_reduce", true);
  const at::Tensor scale = OrNone(weight);
  const NativeScope scope(count, TheCardOf("batch_norm_backward_reduce", {&gradient, &input, &mean, &invstd, &scale}));
  const at::Tensor host = HostTwin(input);
  const at::Tensor arriving = HostTwin(gradient).to(SumType(host));
  const auto dimensions = AllButChannels(host);
  const at::Tensor sum = arriving.sum(dimensions);
  const at::Tensor product = (arriving * (host.to(SumType(host)) - PerChannel(HostTwin(mean), host))).sum(dimensions);
  const auto type = scale.defined() ? scale.scalar_type() : SumType(host);
  return {of_input ? scope.Back(sum) : at::Tensor(), of_input ? scope.Back(product) : at::Tensor(),
          of_weight ? scope.Back((product * HostTwin(invstd)).to(type)) : at::Tensor(),
          of_bias ? scope.Back(sum.to(type, false, true)) : at::Tensor()};
}

at::Tensor BackwardElements(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                            const at::Tensor& invstd, const MaybeTensor& weight, const at::Tensor& sum_dy,
                            const at::Tensor& sum_dy_xmu, const at::Tensor& counts) {
  static OperatorCount& count = CountOf("aten::batch_norm_backward_elemt", true);
  const at::Tensor scale = OrNone(weight);
  const NativeScope scope(count, TheCardOf("batch_norm_backward_elemt",
                                           {&gradient, &input, &mean, &invstd, &scale, &sum_dy, &sum_dy_xmu, &counts}));
  const at::Tensor host = HostTwin(input);
  const auto type = SumType(host);
  const at::Tensor all = HostTwin(counts).sum().to(type);
  const at::Tensor width = PerChannel(HostTwin(invstd), host);
  const at::Tensor mean_dy = PerChannel(HostTwin(sum_dy), host) / all;
  const at::Tensor mean_dy_xmu = PerChannel(HostTwin(sum_dy_xmu), host) / all;
  const at::Tensor centered = host.to(type) - PerChannel(HostTwin(mean), host);
  at::Tensor result = (HostTwin(gradient).to(type) - mean_dy - centered * width.square() * mean_dy_xmu) * width;
  if (scale.defined()) result = result * PerChannel(HostTwin(scale), host);
  return scope.Back(result.to(host.scalar_type()));
}

}  // namespace

void RegisterBatchNorm(torch::Library& library) {
  library.impl("batch_norm_stats", &Stats);
  library.impl("batch_norm_gather_stats_with_counts", &GatherStats);
  library.impl("batch_norm_elemt", &Elements);
  library.impl("batch_norm_backward_reduce", &BackwardReduce);
  library.impl("batch_norm_backward_elemt", &BackwardElements);
}

}  // namespace fulldeck::simulator
