#include "simulator/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <chrono>

#include "simulator/card.h"
#include "wire/simulated_spec.h"

namespace fulldeck::simulator {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

struct Event {
  std::chrono::steady_clock::time_point recorded;
  c10::DeviceIndex card;
};

// The thread's current stream on each card; 0 is the default stream.
thread_local std::array<c10::StreamId, wire::kMaxSimulatedCards> t_streams = {};
std::atomic<c10::StreamId> g_last_stream{0};

class CardGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, CurrentCard()}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) SetCurrentCard(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < CardCount()) SetCurrentCard(device.index());
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(CardCount()); }

  c10::Stream getStream(c10::Device device) const override {
    const int card = CardOf(device);
    return StreamOf(card, t_streams[static_cast<std::size_t>(card)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return StreamOf(CardOf(device), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return StreamOf(CardOf(device), g_last_stream.fetch_add(1, std::memory_order_relaxed) + 1);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const int card = CardOf(stream.device());
    c10::StreamId& current = t_streams[static_cast<std::size_t>(card)];
    const c10::Stream before = StreamOf(card, current);
    current = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  // A real card reports asynchronous failures at this point.
  void synchronizeStream(const c10::Stream& stream) const override { WaitForCard(CardOf(stream.device())); }
  void synchronizeDevice(c10::DeviceIndex card) const override { WaitForCard(CardOf(c10::Device(kType, card))); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = {std::chrono::steady_clock::now(), stream.device_index()};
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) WaitForCard(static_cast<Event*>(event)->card);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "Both events must be recorded before their distance can be told.");
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(to)->recorded -
                                                     static_cast<Event*>(from)->recorded)
        .count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

 private:
  static c10::Stream StreamOf(int card, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, static_cast<c10::DeviceIndex>(card)), id);
  }
};

}  // namespace

void RegisterGuard() {
  // torch keeps the pointer and never deletes it.
  c10::impl::registerDeviceGuard(kType, new CardGuard);
}

}  // namespace fulldeck::simulator
