// Moving bytes is nobody's business but ours: while one of these lives, operations on tensors in this thread know
// nothing of autograd, and nothing of modes (Python's dispatch, tracing) that the thread may be in.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace fulldeck::torch_backend {

struct QuietDispatch {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_python{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

}  // namespace fulldeck::torch_backend
