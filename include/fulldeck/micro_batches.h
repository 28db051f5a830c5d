// Runs one optimizer step as one or more micro-batches, and handles out of memory during the step.
//
//   fulldeck::MicroBatches micro(*session, optimizer, {.oom = fulldeck::OutOfMemory::kHalve});
//   micro.Run(images.size(0), [&](const fulldeck::MicroBatch& part) {
//     std::optional<fulldeck::DataParallelCore::Unsynchronised> no_sync;
//     if (!part.is_last()) no_sync.emplace(model);
//     const auto x = images.narrow(0, part.begin, part.size);
//     const auto y = labels.narrow(0, part.begin, part.size);
//     (Loss(model.Forward(x), y) * part.weight()).backward();
//   });
//
// Run zeroes the gradients, calls the function for each micro-batch in turn (forward and backward; the gradients
// accumulate, and the last backward averages them over the ranks), and then runs the optimizer step. With losses that
// are means over samples, weight() makes the sum over the micro-batches the mean over the whole batch.
//
// Out of memory in forward, backward or the optimizer, on any rank:
//   kFail    (default) That rank's Run throws an Error with the card, its memory use and what to do.
//   kHalve   All ranks switch, in the same step, to micro-batches of half the size, and twice as many of them. The
//            global batch, the effective learning rate and the losses stay the same. The step is repeated with the
//            random numbers that it began with, or, if some rank had already finished it, completed from that rank's
//            state. Each rank reports it on stderr. Micro-batches of one sample that do not fit are an Error.
//
// How kHalve releases all ranks: the rank that failed aborts the process group, which ends the other ranks' waits in
// it. All ranks then rendezvous through the store and create a new group (Session::Regroup). Objects that keep a group
// (DataParallel) must have registered with Session::OnRegroup. Works with the backends fulldeck and nccl. Refused with
// Gloo, because a wait in Gloo cannot be ended from outside. Each step costs one more all-reduce of one number and,
// until a step has succeeded at the current size, a copy of parameters and optimizer state to the host before the
// optimizer begins.
//
// The function may be called again for the same samples: it must not take them from an iterator. What it changes other
// than gradients, random numbers and MicroBatchOptions::restored stays changed.
//
// Threads: call it only from the training loop's thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/session.h"

namespace fulldeck {

enum class OutOfMemory { kFail, kHalve };
// "fail" or "halve"; throws an Error for anything else.
FULLDECK_RUNTIME_API OutOfMemory OutOfMemoryFromText(std::string_view text);

// A range of this rank's samples of one step.
struct MicroBatch {
  std::int64_t index = 0;  // 0 … count−1
  std::int64_t count = 1;
  std::int64_t begin = 0;  // offset of the first sample among this rank's samples
  std::int64_t size = 0;   // samples
  std::int64_t total = 0;  // samples of all micro-batches of this rank

  bool is_last() const { return index + 1 == count; }
  // Share of the rank's samples.
  double weight() const { return static_cast<double>(size) / static_cast<double>(total); }
};

struct MicroBatchOptions {
  std::int64_t micro_batch = 0;  // maximum samples per micro-batch, the same on all ranks; 0: all samples of a step
  OutOfMemory oom = OutOfMemory::kFail;
  // Tensors other than parameters that forward changes (a module's buffers, such as running means): restored before a
  // step is repeated. kHalve copies them every step.
  std::vector<at::Tensor> restored;
  // Called instead of optimizer.step(): clipping, a gradient scaler. May run out of memory, as optimizer.step() may.
  std::function<void()> apply;
};

class FULLDECK_RUNTIME_API MicroBatches {
 public:
  // Both must outlive it. kHalve supports the state of SGD, Adam, AdamW, RMSprop and Adagrad; it refuses other
  // optimizers, and Gloo.
  MicroBatches(Session& session, torch::optim::Optimizer& optimizer, MicroBatchOptions options = {});
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;
  MicroBatches& operator=(const MicroBatches&) = delete;

  // `samples` of this rank, at least 1.
  void Run(std::int64_t samples, const std::function<void(const MicroBatch&)>& forward_and_backward);

  std::int64_t micro_batch() const;  // current maximum samples per micro-batch; 0: no limit
  int times_halved() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Pure: splits `samples` into micro-batches of at most `micro_batch` (0: a single one), as evenly as possible.
FULLDECK_RUNTIME_API std::vector<MicroBatch> CutIntoMicroBatches(std::int64_t samples, std::int64_t micro_batch);

}  // namespace fulldeck
