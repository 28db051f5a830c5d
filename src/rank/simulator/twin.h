// A twin: a CPU tensor over the same bytes as a card's tensor, and the way back. Sizes, strides, offset, conjugation
// and negation are kept; nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>

namespace fulldeck::simulator {

// An undefined tensor or a CPU tensor is returned unchanged. Only dense tensors have twins; others throw.
at::Tensor HostTwin(const at::Tensor& tensor);
std::optional<at::Tensor> HostTwin(const std::optional<at::Tensor>& tensor);

// A card's tensor over the result of a CPU kernel. Throws c10::OutOfMemoryError if it does not fit on the card.
at::Tensor CardTensor(const at::Tensor& host, int card);
// The same over an existing storage of the card (a view).
at::Tensor CardTensorOver(const at::Tensor& host, const c10::Storage& storage);

// After a kernel has written to the twin: updates size, strides and storage of the card's tensor.
void FollowTwin(const at::Tensor& tensor, const at::Tensor& twin);

}  // namespace fulldeck::simulator
