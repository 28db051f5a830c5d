// Chapter J: silent in the loop. The training runs and is wrong; the launcher or a rank has said so.
#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

std::vector<CatalogueEntry> LoopEntries() {
  // Symptoms: where a run has failed, what it failed of comes first.
  return {
      {
          .id = "J1",
          .title = "every rank trains on the same batches",
          .weight = Weight::kSymptom,
          .english =
              {"The data is not shared out: the first batches of several ranks were the same, so that more cards "
               "only repeat the same work.",
               "Give the DataLoader a DistributedSampler (num_replicas: the run's number of ranks, rank: this "
               "rank's number), or split an iterable data set by rank."},
          .chinese = {"数据没有按 rank 划分：多个 rank 的前几个批次完全相同，增加卡数只是重复同样的计算。",
                      "为 DataLoader 设置 DistributedSampler（num_replicas 为 rank 总数，rank "
                      "为本进程编号）；可迭代数据集要按 "
                      "rank 切分。"},
          .any_of = {{"WARNING: J1:"}},
      },
      {
          .id = "J2",
          .title = "the same order in every epoch",
          .weight = Weight::kSymptom,
          .english = {"The sampler shuffles by the number of the epoch, and nobody told it that number.",
                      "Call sampler.set_epoch(epoch) at the beginning of each epoch."},
          .chinese = {"采样器按 epoch 编号打乱数据，但没有人告诉它当前编号，每个 epoch 的顺序都一样。",
                      "在每个 epoch 开始时调用 sampler.set_epoch(epoch)。"},
          .any_of = {{"WARNING: J2:"}},
      },
      {
          .id = "J3",
          .title = "the ranks' parameters differ",
          .weight = Weight::kSymptom,
          .english =
              {"After the same step the ranks do not have the same parameters: the model was replaced or changed "
               "on some ranks after it was wrapped, or gradients were not reduced (J4).",
               "Load weights and change layers before the wrap, and on all ranks alike; make the optimizer after "
               "it. If none of that is so, test the card of the rank that differs."},
          .chinese = {"同一步之后各 rank 的参数不一致：包装之后模型在部分 rank 上被替换或修改，或梯度没有归约（J4）。",
                      "在包装之前、且在所有 rank 上一致地加载权重和修改网络，之后再创建优化器；若都不是，请检查该 rank "
                      "的卡。"},
          .any_of = {{"WARNING: J3:"}},
      },
      {
          .id = "J4",
          .title = "gradients that nobody reduced",
          .weight = Weight::kSymptom,
          .english =
              {"The optimizer steps, and no forward went through DistributedDataParallel since its last step, or "
               "only under no_sync(): each rank trains a model of its own.",
               "Call the wrapped model, not model.module(x), and leave no_sync() before the last backward of a "
               "step."},
          .chinese =
              {"优化器在更新，但上次更新之后没有经过 DistributedDataParallel 的前向（或只在 no_sync() 中），各 rank "
               "各自训练自己的模型。",
               "调用包装后的模型而不是 model.module(x)，并在每一步最后一次 backward 之前退出 no_sync()。"},
          .any_of = {{"WARNING: J4:"}},
      },
      {
          .id = "J5",
          .title = "only one rank works",
          .weight = Weight::kSymptom,
          .english =
              {"One rank makes all the steps, or all others only wait for it.",
               "Let every rank run the training loop on its own part of the data; look for `if rank == 0` round "
               "it, and for data that one rank alone has. What one rank must do alone (files, logs) comes after."},
          .chinese = {"只有一个 rank 在训练，其余的没有步数或一直在等待它。",
                      "让每个 rank 都在自己的那份数据上运行训练循环；检查循环外是否有 if rank == "
                      "0，以及数据是否只分给了一个 rank。"},
          .any_of = {{"WARNING: J5:"}},
      },
      {
          .id = "J6",
          .title = "NaN or Inf in gradients or losses",
          .english =
              {"Gradients or the loss stopped being finite. From then on every step spoils the weights, and with "
               "reduced gradients those of all ranks.",
               "Lower or warm up the learning rate, clip gradients, use bfloat16 or a GradScaler in place of "
               "plain float16, and look for NaN in the inputs; torch.autograd.set_detect_anomaly(True) names the "
               "operation."},
          .chinese = {"梯度或损失出现 NaN/Inf：此后每一步都会破坏权重；梯度经过规约时，所有 rank 都会受影响。",
                      "降低学习率或加预热、裁剪梯度，用 bfloat16 或 GradScaler 代替裸 float16，并检查输入里是否有 "
                      "NaN；torch.autograd.set_detect_anomaly(True) 可定位到具体算子。"},
          .any_of = {{"WARNING: J6:"}},
      },
  };
}

}  // namespace fulldeck::diagnosis
