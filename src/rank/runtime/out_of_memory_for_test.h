// For tests: a graph that runs out of memory on request.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

namespace fulldeck::runtime {

[[noreturn]] inline void RunOutOfMemory() {
  C10_THROW_ERROR(OutOfMemoryError, "the test allows no more");
}

// Passes a tensor through, and runs out of memory in backward on request.
struct FailingBackward : torch::autograd::Function<FailingBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, bool fails) {
    context->saved_data["fails"] = fails;
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (context->saved_data["fails"].toBool()) RunOutOfMemory();
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace fulldeck::runtime
