#include "torch_backend/tensor_staging.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <sched.h>

#include <chrono>
#include <thread>

#include "torch_backend/element.h"

namespace fulldeck::torch_backend {
namespace {

// A function of the CUDA runtime that torch has loaded; nullptr: not loaded.
template <typename Function>
Function RuntimeFunction(const char* cuda_name, const char* hip_name) {
  for (const char* name : {cuda_name, hip_name}) {
    if (void* found = dlsym(RTLD_DEFAULT, name)) return reinterpret_cast<Function>(found);
  }
  for (const char* library : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libamdhip64.so"}) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    for (const char* name : {cuda_name, hip_name}) {
      // The handle is never closed: the function is used as long as the process lives.
      if (void* found = dlsym(handle, name)) return reinterpret_cast<Function>(found);
    }
    dlclose(handle);
  }
  return nullptr;
}

using HostRegister = int (*)(void* memory, std::size_t bytes, unsigned int flags);
using HostUnregister = int (*)(void* memory);
using LastError = int (*)();

// A wait that soon yields the CPU: ranks often outnumber the cores.
void WaitFor(const c10::Event& event) {
  const auto begin = std::chrono::steady_clock::now();
  while (!event.query()) {
    if (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(100)) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

template <typename Body>
base::Result<void> Caught(Body body) {
  try {
    body();
    return {};
  } catch (const std::exception& error) {
    return base::Error{std::string("a copy between a card and the host failed: ") + error.what()};
  }
}

}  // namespace

at::Tensor FlatElements(const at::Tensor& contiguous) {
  const at::Tensor flat = contiguous.view({-1});
  if (flat.is_complex()) return flat.view(c10::toRealValueType(flat.scalar_type()));
  return ElementOf(flat.scalar_type()).only_bytes ? flat.view(at::kByte) : flat;
}

CallerOrder::CallerOrder(c10::Device device)
    : device_(device), stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)) {
  if (!CopiesOverlap(device)) return;
  event_.emplace(device.type());
  event_->record(stream_);
}

void CallerOrder::Block(const c10::Stream& other) const {
  if (event_) event_->block(other);
}

bool HasCards() {
  for (int type = 0; type < static_cast<int>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES); ++type) {
    const auto kind = static_cast<c10::DeviceType>(type);
    if (kind == c10::DeviceType::CPU || kind == c10::DeviceType::Meta || !c10::impl::hasDeviceGuardImpl(kind)) continue;
    if (c10::impl::VirtualGuardImpl(kind).deviceCount() > 0) return true;
  }
  return false;
}

bool CopiesOverlap(c10::Device device) {
  return device.type() == c10::DeviceType::CUDA;
}

PinnedMemory::PinnedMemory(const std::vector<std::span<std::byte>>& memory) {
  const auto pin = RuntimeFunction<HostRegister>("cudaHostRegister", "hipHostRegister");
  const auto last_error = RuntimeFunction<LastError>("cudaGetLastError", "hipGetLastError");
  if (pin == nullptr) return;
  constexpr unsigned int kPortable = 1;  // cudaHostRegisterPortable: for all contexts of the process
  for (const std::span<std::byte> range : memory) {
    const int error = pin(range.data(), range.size(), kPortable);
    if (error == 0) {
      pinned_.push_back(range.data());
      continue;
    }
    if (last_error != nullptr)
      last_error();  // clears the error; otherwise the program's next kernel launch would
                     // report it
    static std::once_flag logged;
    std::call_once(logged, [error] {
      base::Log(base::Severity::kWarning, "the shared memory of the collectives cannot be pinned (CUDA error " +
                                              std::to_string(error) +
                                              "), so copies between the cards and it are slower. The limit on locked "
                                              "memory (ulimit -l) may be too low.");
    });
    return;
  }
}

PinnedMemory::~PinnedMemory() {
  const auto unpin = RuntimeFunction<HostUnregister>("cudaHostUnregister", "hipHostUnregister");
  if (unpin == nullptr) return;
  for (void* memory : pinned_)
    unpin(memory);  // at process exit the runtime may be gone; it then returns an error, which is harmless
}

CopyStreams::StreamPair CopyStreams::StreamsOf(c10::Device device) {
  const std::lock_guard lock(mutex_);
  const auto found = copy_streams_.find(device.index());
  if (found != copy_streams_.end()) return found->second;
  const c10::DeviceGuard guard(device);
  if (!pinned_) pinned_ = std::make_unique<PinnedMemory>(memory_());
  const c10::impl::VirtualGuardImpl devices(device.type());
  const StreamPair streams{devices.getStreamFromGlobalPool(device), devices.getStreamFromGlobalPool(device)};
  return copy_streams_.emplace(device.index(), streams).first->second;
}

TensorStaging::TensorStaging(const at::Tensor& tensor, const CallerOrder& order, CopyStreams& copy_streams)
    : flat_(FlatElements(tensor)), order_(order) {
  if (!CopiesOverlap(tensor.device())) return;
  streams_ = copy_streams.StreamsOf(tensor.device());
  order.Block(streams_->in);
  order.Block(streams_->out);
}

TensorStaging::~TensorStaging() {
  try {
    FinishAll();
  } catch (const std::exception& error) {
    base::Log(base::Severity::kError, std::string("waiting for copies of a failed call: ") + error.what());
  }
}

void TensorStaging::Record(std::optional<c10::Event>& event, const c10::Stream& stream) const {
  const auto flag = measured_ ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
  if (!event) event.emplace(flat_.device().type(), flag);
  event->record(stream);
}

void TensorStaging::Copy(std::byte* host, std::uint64_t offset, std::uint64_t bytes, bool to_host, Copies& copies) {
  const auto unit = static_cast<std::uint64_t>(flat_.element_size());
  const auto length = static_cast<std::int64_t>(bytes / unit);
  const at::Tensor on_card = flat_.narrow(0, static_cast<std::int64_t>(offset / unit), length);
  at::Tensor in_slot = at::from_blob(host, {length}, at::TensorOptions().dtype(flat_.scalar_type()));
  const c10::Stream stream = !streams_ ? order_.stream() : (to_host ? streams_->in : streams_->out);
  const c10::StreamGuard guard(stream);
  if (measured_ && !copies.under_way) Record(copies.begun, stream);
  copies.under_way = true;
  if (to_host) {
    in_slot.copy_(on_card, /*non_blocking=*/streams_.has_value());
  } else {
    on_card.copy_(in_slot, /*non_blocking=*/streams_.has_value());
  }
  if (streams_) Record(copies.ended, stream);
}

void TensorStaging::Finish(Copies& copies) const {
  if (!copies.under_way) return;
  copies.under_way = false;
  if (!copies.ended) return;
  WaitFor(*copies.ended);
  if (!measured_) return;
  const std::chrono::duration<double, std::milli> took(copies.begun->elapsedTime(*copies.ended));
  copies.took = std::chrono::duration_cast<base::Duration>(took);
}

base::Result<void> TensorStaging::StartIn(std::byte* to, std::uint64_t offset, std::uint64_t bytes, int ticket) {
  return Caught([&] { Copy(to, offset, bytes, true, in_.at(static_cast<std::size_t>(ticket))); });
}
base::Result<void> TensorStaging::FinishIn(int ticket) {
  return Caught([&] { Finish(in_.at(static_cast<std::size_t>(ticket))); });
}
base::Result<void> TensorStaging::StartOut(std::uint64_t offset, const std::byte* from, std::uint64_t bytes,
                                           int ticket) {
  return Caught(
      [&] { Copy(const_cast<std::byte*>(from), offset, bytes, false, out_.at(static_cast<std::size_t>(ticket))); });
}
base::Result<void> TensorStaging::FinishOut(int ticket) {
  return Caught([&] { Finish(out_.at(static_cast<std::size_t>(ticket))); });
}

void TensorStaging::FinishAll() {
  for (int ticket = 0; ticket < collectives::kStagingTickets; ++ticket) {
    Finish(in_.at(static_cast<std::size_t>(ticket)));
    Finish(out_.at(static_cast<std::size_t>(ticket)));
  }
}

}  // namespace fulldeck::torch_backend
