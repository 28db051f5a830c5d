// Every operator that has no kernel of its own on a card: its tensors' twins go to the host's kernel, below autograd,
// and what comes back becomes the card's. docs/simulated-accelerator.md says which operators that are.
#pragma once

#include <torch/library.h>

#include <memory>
#include <vector>

namespace fulldeck::simulator {

// Registers it for all operators of torch that the host has a kernel for and `library` (aten, PrivateUse1) has not, and
// through `rest` (all namespaces) for whatever is registered later. The libraries' registrations live as long as they.
void RegisterFallback(torch::Library& library, torch::Library& rest);

// Registers the operators that are the cards' own; which must come first.
void RegisterMemoryOperators(torch::Library& library);   // making, seeing, copying
void RegisterComputeOperators(torch::Library& library);  // convolution, dropout, attention
void RegisterBatchNorm(torch::Library& library);         // what torch.nn.SyncBatchNorm is made of
void RegisterRecurrentCells(torch::Library& library);
void RegisterAutocast(torch::Library& library, torch::Library& rest);  // aten and all, AutocastPrivateUse1

// Makes the first number of a card's result wrong, as a lying card does. Nothing where there is no number.
void Falsify(const at::Tensor& host_result);

}  // namespace fulldeck::simulator
