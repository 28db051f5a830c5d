// Operators that torch dispatches under separate names on third-party devices, or whose random numbers must come from
// the card's generator.
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "simulator/fallback.h"
#include "simulator/generator.h"
#include "simulator/native_scope.h"

namespace fulldeck::simulator {
namespace {

at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  static OperatorCount& count = CountOf("aten::convolution_overrideable", true);
  const at::Tensor added = bias.value_or(at::Tensor());
  const NativeScope scope(count, TheCardOf("convolution", {&input, &weight, &added}));
  const at::Tensor host = at::convolution_symint(HostTwin(input), HostTwin(weight), HostTwin(bias), stride, padding,
                                                 dilation, transposed, output_padding, std::move(groups));
  if (scope.lies()) Falsify(host);
  return scope.Back(host);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(const at::Tensor& gradient, const at::Tensor& input,
                                                                   const at::Tensor& weight, c10::SymIntArrayRef stride,
                                                                   c10::SymIntArrayRef padding,
                                                                   c10::SymIntArrayRef dilation, bool transposed,
                                                                   c10::SymIntArrayRef output_padding,
                                                                   c10::SymInt groups, std::array<bool, 3> wanted) {
  static OperatorCount& count = CountOf("aten::convolution_backward_overrideable", true);
  const NativeScope scope(count, TheCardOf("convolution_backward", {&gradient, &input, &weight}));
  const c10::SymInt channels[] = {gradient.sym_size(1)};
  const auto host = at::convolution_backward_symint(HostTwin(gradient), HostTwin(input), HostTwin(weight),
                                                    c10::SymIntArrayRef(channels), stride, padding, dilation,
                                                    transposed, output_padding, std::move(groups), wanted);
  return {scope.Back(std::get<0>(host)), scope.Back(std::get<1>(host)), scope.Back(std::get<2>(host))};
}

std::tuple<at::Tensor, at::Tensor> Dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  static OperatorCount& count = CountOf("aten::native_dropout", true);
  const int card = input.device().index();
  const NativeScope scope(count, card);
  const at::Tensor host = HostTwin(input);
  const auto as_mask = host.options().dtype(at::kBool);
  if (!train.value_or(true) || host.numel() == 0)
    return {scope.Back(host.clone()), scope.Back(at::ones_like(host, as_mask))};
  if (p == 1) return {scope.Back(at::zeros_like(host)), scope.Back(at::zeros_like(host, as_mask))};
  at::Tensor mask = at::empty_like(host, as_mask);
  mask.bernoulli_(1 - p, HostGenerator(std::nullopt, card));
  return {scope.Back(host.mul(mask).mul_(1 / (1 - p))), scope.Back(mask)};
}

// Selects the implementation of scaled_dot_product_attention: the same as on the CPU.
std::int64_t AttentionKind(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& mask, double dropout, bool causal,
                           std::optional<double> scale, bool grouped) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::_fused_sdp_choice(HostTwin(query), HostTwin(key), HostTwin(value), HostTwin(mask), dropout, causal, scale,
                               grouped);
}

}  // namespace

void RegisterComputeOperators(torch::Library& library) {
  library.impl("convolution_overrideable", &Convolution);
  library.impl("convolution_backward_overrideable", &ConvolutionBackward);
  library.impl("native_dropout", &Dropout);
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&AttentionKind);
}

}  // namespace fulldeck::simulator
