// The fallback for every operator that has no kernel of its own on a card: passes the tensors' twins to the CPU kernel,
// below autograd, and turns the results into the card's tensors. docs/simulated-accelerator.md lists these operators.
#pragma once

#include <torch/library.h>

#include <memory>
#include <vector>

namespace fulldeck::simulator {

// Registers the fallback for all operators of torch that have a CPU kernel and none in `library` (aten, PrivateUse1),
// and through `rest` (all namespaces) for everything registered later. The registrations live as long as the libraries.
void RegisterFallback(torch::Library& library, torch::Library& rest);

// Registers the cards' own operators; call these first.
void RegisterMemoryOperators(torch::Library& library);   // creation, views, copies
void RegisterComputeOperators(torch::Library& library);  // convolution, dropout, attention
void RegisterBatchNorm(torch::Library& library);         // for torch.nn.SyncBatchNorm
void RegisterRecurrentCells(torch::Library& library);
void RegisterAutocast(torch::Library& library, torch::Library& rest);  // aten and all namespaces, AutocastPrivateUse1

// Changes the first number of a card's result, to simulate a card that computes wrong sums. Does nothing if there is no
// number.
void Falsify(const at::Tensor& host_result);

}  // namespace fulldeck::simulator
