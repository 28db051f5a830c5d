// A card's tensor as one of the host over the same bytes, and the way back. Sizes, strides, offset, conjugation and
// negation stay what they are; nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>

namespace fulldeck::simulator {

// Of an undefined tensor, and of one that is the host's already, itself. Only dense tensors have twins: others throw.
at::Tensor HostTwin(const at::Tensor& tensor);
std::optional<at::Tensor> HostTwin(const std::optional<at::Tensor>& tensor);

// A tensor of the card over what the host's kernel made. Throws c10::OutOfMemoryError when the card cannot hold it.
at::Tensor CardTensor(const at::Tensor& host, int card);
// The same over a card's storage that is there already (a view).
at::Tensor CardTensorOver(const at::Tensor& host, const c10::Storage& storage);

// After a kernel has written to the twin: size, strides and storage of the card's tensor follow.
void FollowTwin(const at::Tensor& tensor, const at::Tensor& twin);

}  // namespace fulldeck::simulator
