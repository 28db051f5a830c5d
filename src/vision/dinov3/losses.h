// The training loss: the cross-entropy of logits and labels, for the main head and the auxiliary head.
//
// With several ranks the loss is the mean over all labeled pixels of all ranks, as one rank with the whole batch would
// compute it, however unevenly the labels are distributed. DataParallel averages gradients over ranks, so each rank
// divides the sum over its own pixels by the mean of the ranks' counts:
//
//   const at::Tensor labeled = LabeledPerRank(team, labels, 255);   // of this rank's whole step
//   for each micro-batch: LossesOf(prediction, its labels, …, labeled).total.backward();
//
// Micro-batches need no weights: their losses add up to the rank's loss.
#pragma once

#include <ATen/core/Tensor.h>
#include <fulldeck/team.h>

#include <cstdint>

#include "dinov3/vision_model.h"
#include "model_spec/options.h"

namespace fulldeck::dinov3 {

// 0-dimensional, on the device of the predictions, float32. The mean over ranks of the sum over micro-batches is the
// loss of the step.
struct Losses {
  at::Tensor total;  // main + model.auxiliary_weight · auxiliary
  at::Tensor main;
  at::Tensor auxiliary;  // undefined without an auxiliary head
};

// labels: [N, H, W] (segmentation; logits are upsampled to H × W) or [N], int64. `labeled`: from LabeledPerRank;
// undefined: counts only the labels of these predictions. If nothing is labeled on any rank, the loss is 0. Throws
// Error if the labels do not fit the predictions.
Losses LossesOf(const Prediction& prediction, const at::Tensor& labels, const model_spec::ModelOptions& model,
                std::int64_t ignore_label, double label_smoothing, const at::Tensor& labeled = {});

// The number of labeled pixels (samples) over all ranks, divided by the number of ranks; on the labels' device, without
// synchronizing with it. A collective if the team has several ranks: call it on all ranks, before forward.
at::Tensor LabeledPerRank(const Team& team, const at::Tensor& labels, std::int64_t ignore_label);

}  // namespace fulldeck::dinov3
