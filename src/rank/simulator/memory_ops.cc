// Operators that create tensors on a card, create views, and copy them.
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>

#include "simulator/fallback.h"
#include "simulator/native_scope.h"

namespace fulldeck::simulator {
namespace {

constexpr c10::DispatchKeySet kCardKeys(c10::DispatchKey::PrivateUse1);

int CardAsked(std::optional<at::Device> device, std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "A simulated card has dense tensors alone, and one of ",
              "layout ", *layout, " was asked for.");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return device ? CardOf(*device) : CurrentCard();
}

at::Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> format) {
  static OperatorCount& count = CountOf("aten::empty.memory_format", true);
  count.Add();
  return at::detail::empty_generic(sizes, &MemoryOf(CardAsked(device, layout, pin_memory)), kCardKeys,
                                   c10::dtype_or_default(type), format);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                        std::optional<at::Layout> layout, std::optional<at::Device> device,
                        std::optional<bool> pin_memory) {
  static OperatorCount& count = CountOf("aten::empty_strided", true);
  count.Add();
  return at::detail::empty_strided_generic(sizes, strides, &MemoryOf(CardAsked(device, layout, pin_memory)), kCardKeys,
                                           c10::dtype_or_default(type));
}

// Zero tensors without memory, which autograd uses for derivatives. Here they have memory.
at::Tensor Zeros(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return Empty(sizes, type, layout, device, pin_memory, std::nullopt).zero_();
}

// Between cards, and between a card and the CPU in either direction.
at::Tensor& Copy(at::Tensor& to, const at::Tensor& from, bool) {
  static OperatorCount& count = CountOf("aten::copy_", true);
  for (const at::Tensor* one : {static_cast<const at::Tensor*>(&to), &from}) {
    TORCH_CHECK(one->is_privateuseone() || one->is_cpu(), "A simulated card copies from and to the host and other ",
                "simulated cards, and not with a tensor on ", one->device(), ".");
  }
  const at::Tensor& on_card = to.is_privateuseone() ? to : from;
  const NativeScope scope(count, on_card.device().index());
  std::optional<Operation> on_other;
  if (to.is_privateuseone() && from.is_privateuseone() && to.device() != from.device()) {
    on_other.emplace(from.device().index());
  }
  at::Tensor target = HostTwin(to);
  target.copy_(HostTwin(from));
  return to;
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  at::Tensor target = to;
  return Copy(target, from, non_blocking);
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  at::Tensor target = to;
  target.resize_(from.sizes());
  return Copy(target, from, false);
}

at::Tensor& SetStorageAt(at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes,
                         at::IntArrayRef strides) {
  static OperatorCount& count = CountOf("aten::set_", true);
  count.Add();
  at::native::checkSetStorage(self, source, offset, sizes, strides, true);
  c10::TensorImpl& tensor = *self.unsafeGetTensorImpl();
  if (strides.data() != nullptr) {
    tensor.set_sizes_and_strides(sizes, strides, offset);
  } else {
    tensor.set_storage_offset(offset);
    tensor.set_sizes_contiguous(sizes);
  }
  const std::size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                             static_cast<std::size_t>(offset));
  if (tensor.numel() > 0 && bytes > self.storage().nbytes()) Resize(*self.storage().unsafeGetStorageImpl(), bytes);
  return self;
}

at::Tensor& SetStorage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<std::int64_t>(source.nbytes() / self.dtype().itemsize());
  return SetStorageAt(self, std::move(source), 0, count, at::IntArrayRef());
}

at::Tensor& SetTensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return SetStorageAt(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& SetNothing(at::Tensor& self) {
  const at::Tensor none =
      at::detail::empty_generic({0}, &MemoryOf(self.device().index()), kCardKeys, self.scalar_type(), std::nullopt);
  return SetStorageAt(self, none.storage(), 0, {0}, at::IntArrayRef());
}

// Without this, torch::nn::Module::to() in C++ refuses to move the data of a CPU parameter to a card.
bool HasCompatibleShallowCopyType(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && (tensor.is_cpu() || tensor.is_privateuseone());
  };
  return dense(self) && dense(from);
}

// A no-op: everything is done when the call returns, whatever the stream.
void RecordStream(at::Tensor&, c10::Stream) {}

}  // namespace

void RegisterMemoryOperators(torch::Library& library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_efficientzerotensor", &Zeros);
  library.impl("copy_", &Copy);
  library.impl("_copy_from", &CopyFrom);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("set_.source_Storage", &SetStorage);
  library.impl("set_.source_Storage_storage_offset", &SetStorageAt);
  library.impl("set_.source_Tensor", &SetTensor);
  library.impl("set_", &SetNothing);
  library.impl("_has_compatible_shallow_copy_type", &HasCompatibleShallowCopyType);
  library.impl("record_stream", &RecordStream);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
}

}  // namespace fulldeck::simulator
