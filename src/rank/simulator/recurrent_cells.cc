// The cells of LSTM and GRU. torch calls them as one operator each on every third-party device, and implements them
// only for GPUs. Their workspace for backward may have any layout.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "simulator/fallback.h"
#include "simulator/native_scope.h"

namespace fulldeck::simulator {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor OrNone(const MaybeTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

at::Tensor Plus(const at::Tensor& values, const MaybeTensor& bias) {
  return OrNone(bias).defined() ? values + HostTwin(*bias) : values;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Lstm(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                    const at::Tensor& cx, const MaybeTensor& input_bias,
                                                    const MaybeTensor& hidden_bias) {
  static OperatorCount& count = CountOf("aten::_thnn_fused_lstm_cell", true);
  const NativeScope scope(count, TheCardOf("_thnn_fused_lstm_cell", {&input_gates, &hidden_gates, &cx}));
  const at::Tensor preactivations = Plus(Plus(HostTwin(input_gates) + HostTwin(hidden_gates), input_bias), hidden_bias);
  const auto parts = preactivations.chunk(4, 1);
  const at::Tensor in = parts[0].sigmoid();
  const at::Tensor forget = parts[1].sigmoid();
  const at::Tensor cell = parts[2].tanh();
  const at::Tensor out = parts[3].sigmoid();
  const at::Tensor cy = forget * HostTwin(cx) + in * cell;
  return {scope.Back(out * cy.tanh()), scope.Back(cy), scope.Back(at::cat({in, forget, cell, out}, 1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmBackward(const MaybeTensor& grad_hy, const MaybeTensor& grad_cy,
                                                            const at::Tensor& cx, const at::Tensor& cy,
                                                            const at::Tensor& workspace, bool has_bias) {
  static OperatorCount& count = CountOf("aten::_thnn_fused_lstm_cell_backward_impl", true);
  const NativeScope scope(count, TheCardOf("_thnn_fused_lstm_cell_backward", {&cx, &cy, &workspace}));
  if (!OrNone(grad_hy).defined() && !OrNone(grad_cy).defined()) return {};
  const auto parts = HostTwin(workspace).chunk(4, 1);
  const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const at::Tensor bent = HostTwin(cy).tanh();
  const at::Tensor of_hidden = OrNone(grad_hy).defined() ? HostTwin(*grad_hy) : bent.new_zeros(bent.sizes());
  at::Tensor of_cell = of_hidden * out * (1 - bent.square());
  if (OrNone(grad_cy).defined()) of_cell = of_cell + HostTwin(*grad_cy);
  const at::Tensor of_gates = at::cat({of_cell * cell * in * (1 - in), of_cell * HostTwin(cx) * forget * (1 - forget),
                                       of_cell * in * (1 - cell.square()), of_hidden * bent * out * (1 - out)},
                                      1);
  return {scope.Back(of_gates), scope.Back(of_cell * forget),
          has_bias ? scope.Back(of_gates.sum(0, false)) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> Gru(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                       const at::Tensor& hx, const MaybeTensor& input_bias,
                                       const MaybeTensor& hidden_bias) {
  static OperatorCount& count = CountOf("aten::_thnn_fused_gru_cell", true);
  const NativeScope scope(count, TheCardOf("_thnn_fused_gru_cell", {&input_gates, &hidden_gates, &hx}));
  const auto in = Plus(HostTwin(input_gates), input_bias).chunk(3, 1);
  const auto hidden = Plus(HostTwin(hidden_gates), hidden_bias).chunk(3, 1);
  const at::Tensor before = HostTwin(hx);
  const at::Tensor reset = (in[0] + hidden[0]).sigmoid();
  const at::Tensor update = (in[1] + hidden[1]).sigmoid();
  const at::Tensor fresh = (in[2] + reset * hidden[2]).tanh();
  return {scope.Back(fresh + update * (before - fresh)),
          scope.Back(at::cat({reset, update, fresh, before, hidden[2]}, 1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> GruBackward(const at::Tensor& grad_hy,
                                                                                   const at::Tensor& workspace,
                                                                                   bool has_bias) {
  static OperatorCount& count = CountOf("aten::_thnn_fused_gru_cell_backward", true);
  const NativeScope scope(count, TheCardOf("_thnn_fused_gru_cell_backward", {&grad_hy, &workspace}));
  const auto parts = HostTwin(workspace).chunk(5, 1);
  const at::Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &before = parts[3], &hidden = parts[4];
  const at::Tensor gradient = HostTwin(grad_hy);
  const at::Tensor of_update = gradient * (before - fresh) * (1 - update) * update;
  const at::Tensor of_fresh = gradient * (1 - update) * (1 - fresh.square());
  const at::Tensor of_reset = of_fresh * hidden * (1 - reset) * reset;
  const at::Tensor of_input_gates = at::cat({of_reset, of_update, of_fresh}, 1);
  const at::Tensor of_hidden_gates = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  return {scope.Back(of_input_gates), scope.Back(of_hidden_gates), scope.Back(gradient * update),
          has_bias ? scope.Back(of_input_gates.sum(0, false)) : at::Tensor(),
          has_bias ? scope.Back(of_hidden_gates.sum(0, false)) : at::Tensor()};
}

}  // namespace

void RegisterRecurrentCells(torch::Library& library) {
  library.impl("_thnn_fused_lstm_cell", &Lstm);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &LstmBackward);
  library.impl("_thnn_fused_gru_cell", &Gru);
  library.impl("_thnn_fused_gru_cell_backward", &GruBackward);
}

}  // namespace fulldeck::simulator
