// Tensors of a PrivateUse1 device. Its memory is host memory, but its tensors may only be accessed by copying.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>

#include "torch_backend/ranks_for_test.h"

namespace fulldeck::torch_backend {
namespace {

const c10::Device kCard(c10::DeviceType::PrivateUse1, 0);

struct CardMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = std::malloc(bytes == 0 ? 1 : bytes);
    return {memory, memory, &std::free, kCard};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

CardMemory& Memory() {
  static CardMemory memory;
  return memory;
}

struct CardGuard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Device getDevice() const override { return kCard; }
  c10::Device exchangeDevice(c10::Device) const override { return kCard; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kCard); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kCard); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, CardGuard)

at::Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &Memory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      sizes, strides, &Memory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

// As a CPU tensor over the same memory.
at::Tensor Seen(const at::Tensor& tensor) {
  return at::from_blob(
      const_cast<void*>(tensor.storage().data()), tensor.sizes(), tensor.strides(), tensor.storage_offset(),
      [](void*) {}, tensor.options().device(at::kCPU), at::kCPU);
}

int g_copies = 0;

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  ++g_copies;
  const at::Tensor source = from.device() == kCard ? Seen(from) : from;
  at::Tensor target = to.device() == kCard ? Seen(to) : to;
  target.copy_(source);
  return to;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_copy_from", &CopyFrom);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
}

TEST(PrivateDevice, TensorsOfAnyDeviceGoThroughTheSharedSlots) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    const int n = self.size;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kComplexFloat}) {
      for (const std::int64_t count : {0, 1, 1003, 3000001}) {
        const at::Tensor values = at::arange(count, at::kLong).remainder(50);
        const auto of = [&](int rank) { return (values + rank).to(type); };
        std::vector<at::Tensor> tensors = {of(self.rank).to(kCard)};
        MUST(tensors[0].device() == kCard);
        backend->allreduce(tensors)->wait();
        MUST_EQUAL(tensors[0].cpu(), (values * 2 + 1).to(type));

        tensors = {of(self.rank).to(kCard)};
        c10d::BroadcastOptions root;
        root.rootRank = 1;
        backend->broadcast(tensors, root)->wait();
        MUST_EQUAL(tensors[0].cpu(), of(1));

        at::Tensor mine = of(self.rank).to(kCard);
        at::Tensor all = at::empty({n * count}, at::TensorOptions(kCard).dtype(type));
        backend->_allgather_base(all, mine)->wait();
        MUST_EQUAL(all.cpu(), at::cat({of(0), of(1)}));
        at::Tensor part = at::empty({count}, at::TensorOptions(kCard).dtype(type));
        backend->_reduce_scatter_base(part, all)->wait();
        MUST_EQUAL(part.cpu(), (values * 2 + 2 * self.rank).to(type));

        std::vector<std::int64_t> none;
        at::Tensor exchanged = at::empty({n * count}, at::TensorOptions(kCard).dtype(type));
        at::Tensor doubled = at::cat({of(2 * self.rank), of(2 * self.rank + 1)}).to(kCard);
        backend->alltoall_base(exchanged, doubled, none, none)->wait();
        MUST_EQUAL(exchanged.cpu(), at::cat({of(self.rank), of(2 + self.rank)}));
      }
    }
    MUST(g_copies > 0);
    // A non-contiguous tensor, and a message.
    at::Tensor columns = at::arange(12.0).view({3, 4}).to(kCard).t();
    std::vector<at::Tensor> tensors = {columns};
    const auto work = backend->allreduce(tensors);
    work->wait();
    MUST_EQUAL(columns.cpu(), at::arange(12.0).view({3, 4}).t() * 2);
    MUST(work->getFuture()->completed() && !work->getFuture()->hasError());
    std::vector<at::Tensor> message = {at::full({300000}, self.rank, at::kFloat).to(kCard)};
    if (self.rank == 0) {
      backend->send(message, 1, 0)->wait();
    } else {
      backend->recv(message, 0, 0)->wait();
      MUST_EQUAL(message[0].cpu(), at::zeros({300000}));
    }
    MUST(backend->allocateTensor(10, at::TensorOptions(kCard)).device() == kCard);
  });
}

TEST(PrivateDevice, TensorsOfAnyDeviceGoBetweenNodes) {
  RunRanks(2, [](const RankOfTest& self) {
    BackendRequest request = self.Request();
    request.node_for_tests = self.rank == 0 ? "a" : "b";
    const auto backend = MakeBackend(request);
    std::vector<at::Tensor> tensors = {at::full({1000}, self.rank + 1.0).to(kCard)};
    backend->allreduce(tensors)->wait();
    MUST_EQUAL(tensors[0].cpu(), at::full({1000}, 3.0));
    MUST(PathsOf(backend).hierarchical == 1);
    std::vector<at::Tensor> message = {at::full({1000}, self.rank, at::kFloat).to(kCard)};
    if (self.rank == 0) {
      backend->send(message, 1, 0)->wait();
    } else {
      backend->recv(message, 0, 0)->wait();
      MUST_EQUAL(message[0].cpu(), at::zeros({1000}));
    }
    backend->shutdown();
  });
}

}  // namespace
}  // namespace fulldeck::torch_backend
