#include "simulator/twin.h"

#include "simulator/card.h"
#include "simulator/memory.h"

namespace fulldeck::simulator {
namespace {

void CheckDense(const at::Tensor& tensor, const char* where) {
  TORCH_CHECK(tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested() && !tensor.is_mkldnn(),
              "A simulated card computes with dense tensors alone, and ", where, " is one of layout ", tensor.layout(),
              tensor.is_quantized() ? " and quantized" : "", ".");
}

c10::intrusive_ptr<c10::StorageImpl> StorageOf(const c10::TensorImpl& tensor) {
  c10::Storage storage = tensor.storage();
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage.unsafeReleaseStorageImpl());
}

at::Tensor Make(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  const c10::TensorImpl& from = *like.unsafeGetTensorImpl();
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), from.dtype());
  c10::TensorImpl& to = *made.unsafeGetTensorImpl();
  to.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  if (from.is_wrapped_number()) to.set_wrapped_number(true);
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
  return made;
}

}  // namespace

at::Tensor HostTwin(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  CheckDense(tensor, "an argument");
  return Make(c10::Storage(HostStorage(tensor.storage())), c10::DispatchKey::CPU, tensor);
}

std::optional<at::Tensor> HostTwin(const std::optional<at::Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  return HostTwin(*tensor);
}

at::Tensor CardTensor(const at::Tensor& host, int card) {
  if (!host.defined()) return host;
  CheckDense(host, "the result");
  TORCH_CHECK(host.storage().data() != nullptr || host.storage().nbytes() == 0,
              "The result has no memory: ", "a simulated card has no such tensors.");
  return CardTensorOver(host, OnCard(StorageOf(*host.unsafeGetTensorImpl()), card));
}

at::Tensor CardTensorOver(const at::Tensor& host, const c10::Storage& storage) {
  return Make(storage, c10::DispatchKey::PrivateUse1, host);
}

void FollowTwin(const at::Tensor& tensor, const at::Tensor& twin) {
  c10::TensorImpl& card = *tensor.unsafeGetTensorImpl();
  const c10::TensorImpl& host = *twin.unsafeGetTensorImpl();
  const c10::intrusive_ptr<c10::StorageImpl> under = HostStorage(tensor.storage());
  // Memory wrapped by other code gets a new CPU storage in every call, over the same bytes.
  if (host.storage().unsafeGetStorageImpl() != under.get() && host.storage().data() != tensor.storage().data()) {
    card.set_storage_keep_dtype(OnCard(StorageOf(host), tensor.device().index()));
  }
  if (card.sizes() != host.sizes() || card.strides() != host.strides() ||
      card.storage_offset() != host.storage_offset()) {
    card.set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
  Follow(*tensor.storage().unsafeGetStorageImpl());
}

}  // namespace fulldeck::simulator
