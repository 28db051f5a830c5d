// Tensors of a device with streams and events, whose work runs asynchronously: a CUDA-like device, simulated by threads
// of this process. It tests that copies wait for earlier work on the caller's stream, that a completed call is complete
// on the card, and that the slots are pinned and unpinned. It does not measure speed, and does not show that the real
// driver behaves the same.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <set>

#include "torch_backend/ranks_for_test.h"

namespace {
int g_pins = 0;
std::set<void*> g_pinned;
}  // namespace

// Named as in libcudart, because they are looked up by name when needed.
extern "C" __attribute__((visibility("default"))) int cudaHostRegister(void* memory, std::size_t, unsigned int) {
  ++g_pins;
  g_pinned.insert(memory);
  return 0;
}
extern "C" __attribute__((visibility("default"))) int cudaHostUnregister(void* memory) {
  return g_pinned.erase(memory) == 1 ? 0 : 1;
}

namespace fulldeck::torch_backend {
namespace {

const c10::Device kCard(c10::DeviceType::CUDA, 0);

// Executes its tasks one after another in its own thread, asynchronously.
class Stream {
 public:
  Stream() : thread_([this] { Loop(); }) { thread_.detach(); }
  void Put(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void Drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty() && !busy_; });
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      std::this_thread::yield();
      task();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
  std::thread thread_;
};

// Created in the rank, not in the test's process: threads do not survive a fork.
Stream& StreamOf(c10::StreamId id) {
  static std::mutex mutex;
  static auto* streams = new std::map<c10::StreamId, std::unique_ptr<Stream>>;
  const std::lock_guard lock(mutex);
  auto& stream = (*streams)[id];
  if (!stream) stream = std::make_unique<Stream>();
  return *stream;
}

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;  // versions recorded
  std::uint64_t reached = 0;   // versions completed

  void WaitFor(std::uint64_t version) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= version; });
  }
};

thread_local c10::StreamId t_current = 0;

struct CardGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kCard.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kCard; }
  c10::Device getDevice() const override { return kCard; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream Named(c10::StreamId id) const { return c10::Stream(c10::Stream::UNSAFE, kCard, id); }
  c10::Stream getStream(c10::Device) const override { return Named(t_current); }
  c10::Stream getDefaultStream(c10::Device) const override { return Named(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    static std::atomic<int> next{0};
    return Named(1 + next++ % 8);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return Named(std::exchange(t_current, stream.id())); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new std::shared_ptr<Event>(std::make_shared<Event>());
    const auto shared = Shared(*event);
    std::uint64_t version = 0;
    {
      const std::lock_guard lock(shared->mutex);
      version = ++shared->recorded;
    }
    StreamOf(stream.id()).Put([shared, version] {
      const std::lock_guard lock(shared->mutex);
      shared->reached = version;
      shared->changed.notify_all();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto shared = Shared(event);
    StreamOf(stream.id()).Put([shared, version = Recorded(*shared)] { shared->WaitFor(version); });
  }
  bool queryEvent(void* event) const override {
    const auto shared = Shared(event);
    const std::lock_guard lock(shared->mutex);
    return shared->reached >= shared->recorded;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<std::shared_ptr<Event>*>(event);
  }
  void synchronizeEvent(void* event) const override {
    const auto shared = Shared(event);
    shared->WaitFor(Recorded(*shared));
  }
  void synchronizeStream(const c10::Stream& stream) const override { StreamOf(stream.id()).Drain(); }

  static std::shared_ptr<Event> Shared(void* event) { return *static_cast<std::shared_ptr<Event>*>(event); }
  static std::uint64_t Recorded(Event& event) {
    const std::lock_guard lock(event.mutex);
    return event.recorded;
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, CardGuard)

struct CardMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = std::calloc(1, bytes == 0 ? 1 : bytes);
    return {memory, memory, &std::free, kCard};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
CardMemory g_memory;

at::Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &g_memory, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &g_memory, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           type.value_or(at::kFloat));
}

// As a CPU tensor over the same memory.
at::Tensor Seen(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  return at::from_blob(
      const_cast<void*>(tensor.storage().data()), tensor.sizes(), tensor.strides(), tensor.storage_offset(),
      [](void*) {}, tensor.options().device(at::kCPU), at::kCPU);
}

at::Tensor& Copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  Stream& stream = StreamOf(t_current);
  stream.Put([to, from] { Seen(to).copy_(Seen(from)); });
  if (!non_blocking) stream.Drain();
  return to;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("copy_", &Copy);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
}

// Acts like a slow kernel: the values appear only after a delay.
void FillSlowly(const at::Tensor& tensor, const at::Tensor& values) {
  StreamOf(t_current).Put([tensor, values] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Seen(tensor).copy_(values);
  });
}

TEST(AsyncDevice, CopiesWaitForTheCallersStreamAndAreDoneWithTheCall) {
  RunRanks(2, [](const RankOfTest& self) {
    auto backend = self.Backend();
    const c10::Stream side(c10::Stream::UNSAFE, kCard, 77);
    for (const std::int64_t count : {1, 1003, 3000001}) {
      const at::Tensor values = at::arange(count, at::kLong).remainder(100).to(at::kFloat);
      for (const bool waits : {false, true}) {
        const c10::StreamGuard guard(side);
        std::vector<at::Tensor> tensors = {at::empty({count}, at::TensorOptions(kCard))};
        c10d::AllreduceOptions options;
        options.asyncOp = !waits;
        FillSlowly(tensors[0], values + self.rank);
        backend->allreduce(tensors, options)->wait();
        // Read immediately, without any stream.
        MUST_EQUAL(Seen(tensors[0]), values * 2 + 1);

        at::Tensor mine = at::empty({count}, at::TensorOptions(kCard));
        at::Tensor all = at::empty({2 * count}, at::TensorOptions(kCard));
        FillSlowly(mine, values + self.rank);
        // The call writes the output only after pending work of the caller's stream on it.
        FillSlowly(all, at::full({2 * count}, -1.0));
        const auto work = backend->_allgather_base(all, mine);
        work->wait();
        MUST_EQUAL(Seen(all), at::cat({values, values + 1}));
        const auto future = work->getFuture();
        future->wait();
        MUST(!future->hasError());

        at::Tensor part = at::empty({count}, at::TensorOptions(kCard));
        FillSlowly(all, at::cat({values, values + 1}));
        backend->_reduce_scatter_base(part, all)->wait();
        MUST_EQUAL(Seen(part), values * 2 + 2 * self.rank);
      }
    }
    // Non-contiguous tensors and a message. A sum of sparse tensors would need more operators than this card has.
    at::Tensor columns = at::empty({4, 3}, at::TensorOptions(kCard)).t();
    FillSlowly(columns, at::arange(12.0).view({3, 4}));
    std::vector<at::Tensor> tensors = {columns};
    backend->allreduce(tensors)->wait();
    MUST_EQUAL(Seen(columns), at::arange(12.0).view({3, 4}) * 2);
    std::vector<at::Tensor> message = {at::empty({200000}, at::TensorOptions(kCard))};
    if (self.rank == 0) {
      FillSlowly(message[0], at::full({200000}, 3.0));
      backend->send(message, 1, 0)->wait();
    } else {
      backend->recv(message, 0, 0)->wait();
      MUST_EQUAL(Seen(message[0]), at::full({200000}, 3.0));
    }
    MUST(g_pins > 0 && !g_pinned.empty());
    MUST(!backend->supportsTensorAlloc(0));
    backend->shutdown();
    MUST(g_pinned.empty());
  });
}

TEST(AsyncDevice, CopiesOfAFailedCallAreOverBeforeItIs) {
  RunRanks(2, [](const RankOfTest& self) {
    const auto backend = self.Backend();
    if (self.rank == 0) {
      std::vector<at::Tensor> tensors = {at::ones({3000000}).to(kCard)};
      c10d::AllreduceOptions options;
      options.timeout = std::chrono::milliseconds(500);
      MUST(Has(MUST_THROW(backend->allreduce(tensors, options)->wait()), "Timed out"));
      backend->shutdown();
      MUST(g_pinned.empty());
      self.store->set("over", std::string("yes"));
    }
    self.store->wait({"over"}, std::chrono::seconds(30));
  });
}

}  // namespace
}  // namespace fulldeck::torch_backend
