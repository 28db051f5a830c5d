// The scope of every native kernel of the cards: counted, busy, subject to faults, below autograd and autocast.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <initializer_list>

#include "simulator/card.h"
#include "simulator/counts.h"
#include "simulator/memory.h"
#include "simulator/twin.h"

namespace fulldeck::simulator {

// The card that holds all of these tensors. Undefined tensors and CPU scalars are ignored; anything else throws, as on
// a real card.
inline int TheCardOf(const char* name, std::initializer_list<const at::Tensor*> tensors) {
  int card = -1;
  for (const at::Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    const bool ours = tensor->is_privateuseone();
    if (ours && card < 0) card = tensor->device().index();
    if (!ours && tensor->is_cpu() && tensor->dim() == 0) continue;
    TORCH_CHECK(ours && tensor->device().index() == card,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                card < 0 ? KindName() : CardName(card), " and ", tensor->device(), "! (when calling ", name, ")");
  }
  return card;
}

class NativeScope {
 public:
  NativeScope(OperatorCount& count, int card)
      : no_autocast_(c10::autocast_dispatch_keyset), card_(card), operation_(card) {
    count.Add();
  }
  bool lies() const { return operation_.lies(); }
  at::Tensor Back(const at::Tensor& host) const { return CardTensor(host, card_); }

 private:
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
  int card_;
  Operation operation_;
};

}  // namespace fulldeck::simulator
