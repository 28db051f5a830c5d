// A node at the end of the forward graph, through which all outputs go. Two things hang on it, and without it nothing
// is averaged and no error is raised: with a static graph the Reducer waits in its first step to be told that backward
// is over; and an output that the loss does not use would never make its parameters ready.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace fulldeck::runtime {

// Puts clones of the tensors that need a gradient in their places, as torch's DistributedDataParallel does.
// `backward_begins` is called in the backward pass's thread, at its start: engine callbacks may be queued there.
void PassThroughSink(const std::vector<at::Tensor*>& outputs, std::function<void()> backward_begins);

}  // namespace fulldeck::runtime
