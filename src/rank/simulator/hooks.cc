// The virtual functions through which torch queries a third-party accelerator: counts, generators, pinned memory,
// resizing.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "simulator/card.h"
#include "simulator/generator.h"
#include "simulator/guard.h"
#include "simulator/memory.h"

namespace fulldeck::simulator {
namespace {

class CardHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return CardCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex card) const override {
    return card >= 0 && card < CardCount() && IsOpen(card);
  }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(CardCount()); }
  c10::DeviceIndex getCurrentDevice() const override { return CurrentCard(); }
  void setCurrentDevice(c10::DeviceIndex card) const override { SetCurrentCard(card); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex card) const override {
    const c10::DeviceIndex before = CurrentCard();
    if (card >= 0) SetCurrentCard(card);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex card) const override { return exchangeDevice(card); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex card) const override {
    return DefaultGenerator(card < 0 ? CurrentCard() : card);
  }
  at::Generator getNewGenerator(c10::DeviceIndex card) const override {
    return NewGenerator(CardOf({c10::DeviceType::PrivateUse1, card}));
  }
  at::Device getDeviceFromPtr(void*) const override { return {c10::DeviceType::PrivateUse1, CurrentCard()}; }
  bool isPinnedPtr(const void* data) const override { return IsPinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    Resize(*storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

void RegisterHooks() {
  // torch keeps the pointer and never deletes it.
  at::RegisterPrivateUse1HooksInterface(new CardHooks);
}

}  // namespace fulldeck::simulator
