// The fields of torch's own optimizers: the options of their groups, and the state of each parameter. One list for
// checkpoints, which save it, and for micro-batches, which repair it.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace fulldeck::runtime {

// The fields of each kind, of a group and of a parameter: calls `visit(name, reference)` for each.
template <typename GroupOptions, typename ParameterState>
struct AdamLike {
  using Options = GroupOptions;
  using State = ParameterState;
  template <typename Visit>
  static void VisitOptions(Options& options, const Visit& visit) {
    visit("lr", options.lr());
    visit("betas", options.betas());
    visit("eps", options.eps());
    visit("weight_decay", options.weight_decay());
    visit("amsgrad", options.amsgrad());
  }
  template <typename Visit>
  static void VisitState(State& state, const Visit& visit) {
    visit("step", state.step());
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
  static int TensorsToCome(const Options& options) { return options.amsgrad() ? 3 : 2; }
};
struct AdamKind : AdamLike<torch::optim::AdamOptions, torch::optim::AdamParamState> {
  using Type = torch::optim::Adam;
  static constexpr const char* kName = "Adam";
};
struct AdamWKind : AdamLike<torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  using Type = torch::optim::AdamW;
  static constexpr const char* kName = "AdamW";
};

struct SgdKind {
  using Type = torch::optim::SGD;
  static constexpr const char* kName = "SGD";
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  template <typename Visit>
  static void VisitOptions(Options& options, const Visit& visit) {
    visit("lr", options.lr());
    visit("momentum", options.momentum());
    visit("dampening", options.dampening());
    visit("weight_decay", options.weight_decay());
    visit("nesterov", options.nesterov());
  }
  template <typename Visit>
  static void VisitState(State& state, const Visit& visit) {
    visit("momentum_buffer", state.momentum_buffer());
  }
  static int TensorsToCome(const Options& options) { return options.momentum() != 0 ? 1 : 0; }
};

struct RmspropKind {
  using Type = torch::optim::RMSprop;
  static constexpr const char* kName = "RMSprop";
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  template <typename Visit>
  static void VisitOptions(Options& options, const Visit& visit) {
    visit("lr", options.lr());
    visit("alpha", options.alpha());
    visit("eps", options.eps());
    visit("weight_decay", options.weight_decay());
    visit("momentum", options.momentum());
    visit("centered", options.centered());
  }
  template <typename Visit>
  static void VisitState(State& state, const Visit& visit) {
    visit("step", state.step());
    visit("square_avg", state.square_avg());
    visit("momentum_buffer", state.momentum_buffer());
    visit("grad_avg", state.grad_avg());
  }
  static int TensorsToCome(const Options& options) {
    return 1 + (options.momentum() > 0 ? 1 : 0) + (options.centered() ? 1 : 0);
  }
};

struct AdagradKind {
  using Type = torch::optim::Adagrad;
  static constexpr const char* kName = "Adagrad";
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  template <typename Visit>
  static void VisitOptions(Options& options, const Visit& visit) {
    visit("lr", options.lr());
    visit("lr_decay", options.lr_decay());
    visit("weight_decay", options.weight_decay());
    visit("initial_accumulator_value", options.initial_accumulator_value());
    visit("eps", options.eps());
  }
  template <typename Visit>
  static void VisitState(State& state, const Visit& visit) {
    visit("sum", state.sum());
    visit("step", state.step());
  }
  static int TensorsToCome(const Options&) { return 0; }
};

// Calls `body(AdamWKind())` and so on, for each kind until one returns true. False: none did. AdamW comes before Adam.
template <typename Body>
bool AnyKind(const Body& body) {
  return body(AdamWKind()) || body(AdamKind()) || body(SgdKind()) || body(RmspropKind()) || body(AdagradKind());
}

}  // namespace fulldeck::runtime
