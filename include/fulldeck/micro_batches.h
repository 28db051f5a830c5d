// One optimizer step as one or several micro-batches, and what to do when memory runs out in it.
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
// Run zeroes the gradients, calls the function for each part in turn (forward and backward; the gradients add up, and
// the last part's backward is to average them over the ranks), and then lets the optimizer step. With losses that are
// means over samples, weight() makes the sum of the parts the mean of the whole.
//
// Out of memory, in forward, backward or the optimizer, on any rank:
//   kFail    (default) that rank's Run throws an Error with the card, its figures and what to do.
//   kHalve   all ranks go over, in the same step, to micro-batches of half the size and twice as many of them: the
//   global
//            batch, the learning rate's meaning and the losses stay as they are. The step is repeated with the random
//            numbers that it began with, or, where some rank had already finished it, completed from that rank's state.
//            Said on stderr by each rank. Micro-batches of one sample that do not fit are an Error.
//
// How kHalve gets everybody out: the rank that failed aborts the process group, so that the others' waits in it end;
// all meet through the store and make a new group (Session::Regroup). Parts that keep a group (DataParallel) must have
// asked to be told (Session::OnRegroup). Works with the backends fulldeck and nccl; with Gloo it is refused, because a
// wait in Gloo cannot be ended from outside. Each step costs one all-reduce of one number more, and, until one step has
// succeeded at a size, a copy of parameters and optimizer state to the host before the optimizer begins.
//
// The function may be called again for the same samples: it must not take them from an iterator. What it changes
// besides gradients, random numbers and MicroBatchOptions::restored stays changed.
//
// Threads: the loop's.
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
// "fail", "halve"; an Error for anything else.
FULLDECK_RUNTIME_API OutOfMemory OutOfMemoryFromText(std::string_view text);

// A part of this rank's samples of one step.
struct MicroBatch {
  std::int64_t index = 0;  // 0 … count−1
  std::int64_t count = 1;
  std::int64_t begin = 0;  // of its samples among the rank's
  std::int64_t size = 0;   // samples
  std::int64_t total = 0;  // samples of all parts

  bool is_last() const { return index + 1 == count; }
  // Its share of the rank's samples.
  double weight() const { return static_cast<double>(size) / static_cast<double>(total); }
};

struct MicroBatchOptions {
  std::int64_t micro_batch = 0;  // most samples at once, the same on all ranks; 0: all that a step has
  OutOfMemory oom = OutOfMemory::kFail;
  // Tensors besides parameters that forward changes (a module's buffers: running means): put back before a step is
  // repeated. kHalve copies them every step.
  std::vector<at::Tensor> restored;
  // Instead of optimizer.step(): clipping, a gradient scaler. May throw for want of memory as that may.
  std::function<void()> apply;
};

class FULLDECK_RUNTIME_API MicroBatches {
 public:
  // Both live longer. kHalve knows the state of SGD, Adam, AdamW, RMSprop and Adagrad; another optimizer is refused,
  // and so is Gloo.
  MicroBatches(Session& session, torch::optim::Optimizer& optimizer, MicroBatchOptions options = {});
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;
  MicroBatches& operator=(const MicroBatches&) = delete;

  // `samples` of this rank; not 0.
  void Run(std::int64_t samples, const std::function<void(const MicroBatch&)>& forward_and_backward);

  std::int64_t micro_batch() const;  // most samples at once now; 0: all
  int times_halved() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Pure: how `samples` are cut into parts of at most `micro_batch` (0: one part), as even as can be.
FULLDECK_RUNTIME_API std::vector<MicroBatch> CutIntoMicroBatches(std::int64_t samples, std::int64_t micro_batch);

}  // namespace fulldeck
