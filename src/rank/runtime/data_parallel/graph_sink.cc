#include "runtime/data_parallel/graph_sink.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace fulldeck::runtime {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Call : torch::CustomClassHolder {
  std::function<void()> function;
};

struct Sink : torch::autograd::Function<Sink> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Call>& call, at::TensorList inputs) {
    // Keep undefined gradients undefined instead of zeros, so that the Reducer sees their parameters as unused.
    context->set_materialize_grads(false);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    variable_list outputs;
    outputs.reserve(inputs.size());
    for (const at::Tensor& input : inputs) outputs.push_back(input.clone());
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    static_cast<Call*>(context->saved_data["call"].toCapsule().get())->function();
    gradients.insert(gradients.begin(), at::Tensor());  // for the callable, which has no gradient
    return gradients;
  }
};

}  // namespace

void PassThroughSink(const std::vector<at::Tensor*>& outputs, std::function<void()> backward_begins) {
  variable_list inputs;
  std::vector<at::Tensor*> places;
  for (at::Tensor* const output : outputs) {
    if (!output->defined() || !output->requires_grad()) continue;
    inputs.push_back(*output);
    places.push_back(output);
  }
  if (inputs.empty()) return;
  auto call = c10::make_intrusive<Call>();
  call->function = std::move(backward_begins);
  const variable_list passed = Sink::apply(call, at::TensorList(inputs));
  for (std::size_t i = 0; i < places.size(); ++i) *places[i] = passed[i];
}

}  // namespace fulldeck::runtime
