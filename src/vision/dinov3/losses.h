// What the model learns from: the cross-entropy of its logits and the labels, of each head by its own name.
//
// With several ranks the mean over all labeled pixels of all ranks is what counts, as one rank with the whole batch
// would compute it, however unevenly the labels lie. DataParallel averages gradients over ranks, so each rank divides
// the sum over its own pixels by the mean of the ranks' counts:
//
//   const at::Tensor labeled = LabeledPerRank(team, labels, 255);   // of the whole step of this rank
//   for each micro-batch: LossesOf(prediction, its labels, …, labeled).total.backward();
//
// Micro-batches need no weights then: their losses add up to the rank's.
#pragma once

#include <ATen/core/Tensor.h>
#include <fulldeck/team.h>

#include <cstdint>

#include "config/config.h"
#include "dinov3/vision_model.h"

namespace fulldeck::dinov3 {

// 0 dimensions, on the device of the predictions, float32. The mean over ranks (the sum over micro-batches) is the loss
// of the step.
struct Losses {
  at::Tensor total;  // main + model.auxiliary_weight · auxiliary
  at::Tensor main;
  at::Tensor auxiliary;  // not defined where there is none
};

// labels: [N, H, W] (segmentation; logits are enlarged to H × W) or [N], int64. `labeled`: of LabeledPerRank; not
// defined: the labels of these predictions alone. Where nothing is labeled on any rank, the loss is 0. An Error for
// labels that do not fit the predictions.
Losses LossesOf(const Prediction& prediction, const at::Tensor& labels, const config::Model& model,
                std::int64_t ignore_label, double label_smoothing, const at::Tensor& labeled = {});

// Labelled pixels (samples) of all ranks together, divided by their number; on the labels' device, which is not waited
// for. A collective on the group where the team has several ranks: before forward, on all ranks.
at::Tensor LabeledPerRank(const Team& team, const at::Tensor& labels, std::int64_t ignore_label);

}  // namespace fulldeck::dinov3
