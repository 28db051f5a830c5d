#include "dinov3/losses.h"

#include <ATen/Context.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ne.h>

#include <sstream>
#include <string>

namespace fulldeck::dinov3 {
namespace {

at::Tensor SumOverLabeled(const at::Tensor& logits, const at::Tensor& labels, std::int64_t ignore_label,
                          double label_smoothing) {
  at::Tensor of_each = logits.to(at::kFloat);
  at::Tensor targets = labels;
  if (logits.dim() == 4) {
    of_each = Prediction::Upsample(logits, labels.size(1), labels.size(2));
    // On cards, the loss over maps is accumulated in any order; the loss over rows is not.
    if (at::globalContext().deterministicAlgorithms()) {
      of_each = of_each.permute({0, 2, 3, 1}).flatten(0, 2);
      targets = labels.flatten();
    }
  }
  return at::cross_entropy_loss(of_each, targets, {}, at::Reduction::Sum, ignore_label, label_smoothing);
}

at::Tensor CountOf(const at::Tensor& labels, std::int64_t ignore_label) {
  return at::ne(labels, ignore_label).sum().to(at::kFloat);
}

}  // namespace

Losses LossesOf(const Prediction& prediction, const at::Tensor& labels, const model_spec::ModelOptions& model,
                std::int64_t ignore_label, double label_smoothing, const at::Tensor& labeled) {
  const at::Tensor& logits = prediction.logits;
  if (labels.scalar_type() != at::kLong || labels.dim() != logits.dim() - 1 || labels.size(0) != logits.size(0)) {
    std::ostringstream text;
    text << "labels " << labels.sizes() << " of type " << labels.scalar_type() << " do not fit predictions "
         << logits.sizes() << ": they must be int64, [" << (logits.dim() == 4 ? "N, height, width" : "N")
         << "] with as many samples.";
    throw Error(text.str());
  }
  // Never 0: if nothing is labeled, the sum is 0 too.
  const at::Tensor count = (labeled.defined() ? labeled : CountOf(labels, ignore_label)).clamp_min(1e-6);
  Losses losses;
  losses.main = SumOverLabeled(logits, labels, ignore_label, label_smoothing) / count;
  losses.total = losses.main;
  if (prediction.auxiliary.defined()) {
    losses.auxiliary = SumOverLabeled(prediction.auxiliary, labels, ignore_label, label_smoothing) / count;
    losses.total = losses.main + model.auxiliary_weight * losses.auxiliary;
  }
  return losses;
}

at::Tensor LabeledPerRank(const Team& team, const at::Tensor& labels, std::int64_t ignore_label) {
  at::Tensor count = CountOf(labels, ignore_label);
  if (team.world_size == 1) return count;
  std::vector<at::Tensor> counts = {count};
  team.group->allreduce(counts)->wait();
  return counts[0].div_(team.world_size);
}

}  // namespace fulldeck::dinov3
