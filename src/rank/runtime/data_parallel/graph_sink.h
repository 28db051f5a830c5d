// A node at the end of the forward graph, through which all outputs pass. Without it two things silently break
// averaging: with a static graph the Reducer must be notified in its first step that backward has ended; and an output
// that the loss does not use would never make its parameters ready.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace fulldeck::runtime {

// Replaces the tensors that require a gradient by clones, as torch's DistributedDataParallel does. `backward_begins` is
// called in the backward pass's thread, at its start: engine callbacks may be queued there.
void PassThroughSink(const std::vector<at::Tensor*>& outputs, std::function<void()> backward_begins);

}  // namespace fulldeck::runtime
