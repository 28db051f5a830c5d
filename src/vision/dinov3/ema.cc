#include "dinov3/ema.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "fulldeck/error.h"

namespace fulldeck::dinov3 {
namespace {

// Cannot collide: names of parameters contain no slash.
const char kUpdates[] = "ema/updates";

}  // namespace

Ema::Ema(torch::nn::Module& module, double decay) : decay_(decay) {
  if (!(decay > 0 && decay < 1))
    throw Error("averaged weights need a decay between 0 and 1, and model.ema is " + std::to_string(decay) + ".");
  std::vector<std::pair<std::string, at::Tensor>> others;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) {
      others.emplace_back(item.key(), item.value());
      continue;
    }
    names_.push_back(item.key());
    weights_.push_back(item.value().detach());
  }
  num_trainable_ = weights_.size();
  for (const auto& item : module.named_buffers()) others.emplace_back(item.key(), item.value());
  for (const auto& [name, tensor] : others) {
    names_.push_back(name);
    weights_.push_back(tensor.detach());
  }
  for (const at::Tensor& weight : weights_) average_.push_back(weight.clone());
}

void Ema::Update() {
  if (swapped_) throw Error("averaged weights cannot be updated while the module has them; Swap() them back first.");
  const c10::NoGradGuard no_grad;
  const double seen = static_cast<double>(updates_++);
  const double decay = std::min(decay_, (1 + seen) / (10 + seen));
  const at::TensorList weights(weights_), average(average_);
  if (num_trainable_ > 0)
    at::_foreach_lerp_(average.slice(0, num_trainable_), weights.slice(0, num_trainable_), 1 - decay);
  if (num_trainable_ < weights_.size())
    at::_foreach_copy_(average.slice(num_trainable_), weights.slice(num_trainable_));
}

void Ema::Swap() {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const at::Tensor other = weights_[i].clone();
    weights_[i].copy_(average_[i]);
    average_[i].copy_(other);
  }
  swapped_ = !swapped_;
}

State::NamedTensors Ema::Save() const {
  State::NamedTensors tensors;
  const std::vector<at::Tensor>& averages = swapped_ ? weights_ : average_;
  for (std::size_t i = 0; i < names_.size(); ++i) tensors[names_[i]] = averages[i];
  tensors[kUpdates] = at::full({1}, updates_, at::kLong);
  return tensors;
}

void Ema::Load(const State::NamedTensors& tensors) {
  std::string wrong;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const auto found = tensors.find(names_[i]);
    if (found == tensors.end()) {
      wrong += "\n  missing: " + names_[i];
    } else if (found->second.sizes() != average_[i].sizes()) {
      std::ostringstream text;
      text << "\n  of another shape: " << names_[i] << ", " << found->second.sizes() << " and not "
           << average_[i].sizes();
      wrong += text.str();
    }
  }
  const auto updates = tensors.find(kUpdates);
  if (updates == tensors.end() || updates->second.numel() != 1) wrong += std::string("\n  missing: ") + kUpdates;
  if (!wrong.empty()) throw Error("the averaged weights do not fit the model, and were not loaded:" + wrong);
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor>& averages = swapped_ ? weights_ : average_;
  for (std::size_t i = 0; i < names_.size(); ++i) averages[i].copy_(tensors.at(names_[i]));
  updates_ = updates->second.item<std::int64_t>();
}

}  // namespace fulldeck::dinov3
