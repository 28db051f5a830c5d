// While an instance lives, tensor operations in this thread bypass autograd and any modes (Python dispatch, tracing)
// that the thread is in. Internal copies must be invisible to the program.
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
