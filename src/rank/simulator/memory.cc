#include "simulator/memory.h"

#include <c10/core/CPUAllocator.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "simulator/card.h"
#include "wire/simulated_spec.h"

namespace fulldeck::simulator {
namespace {

struct Block {
  c10::intrusive_ptr<c10::StorageImpl> host;
  std::uint64_t bytes = 0;  // counted as held
  int card = 0;
  std::uint32_t generation = 0;
};

// All counters are statistics: relaxed.
struct Counted {
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::uint64_t> peak{0};
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<std::uint32_t> generation{0};
};

Counted& CountedOf(int card) {
  static std::array<Counted, wire::kMaxSimulatedCards> counted;
  return counted[static_cast<std::size_t>(card)];
}

std::string Quantity(std::uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"bytes", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 48> text = {};
  (void)std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text.data();
}

[[noreturn]] void ThrowOutOfMemory(int card, std::uint64_t bytes) {
  const std::uint64_t total = BytesOfCard();
  const std::uint64_t held = BytesHeld(card);
  std::string kind = KindName();
  for (char& letter : kind) letter = static_cast<char>(letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter);
  throw c10::OutOfMemoryError(
      {__func__, __FILE__, __LINE__},
      kind + " out of memory. Tried to allocate " + Quantity(bytes) + ". " + CardName(card) +
          " has a total capacity of " + Quantity(total) + " of which " + Quantity(held < total ? total - held : 0) +
          " is free. Including non-PyTorch memory, this process has " + Quantity(FiguresOf(card).held) +
          " memory in use; " + Quantity(held) + " of " + Quantity(total) + " are held by all processes together.");
}

// In a child made by fork, memory that the parent held is not counted.
void EnterGeneration(Counted& counted) {
  const std::uint32_t now = ForkGeneration();
  if (counted.generation.load(std::memory_order_relaxed) == now) return;
  counted.held.store(0, std::memory_order_relaxed);
  counted.peak.store(0, std::memory_order_relaxed);
  counted.generation.store(now, std::memory_order_relaxed);
}

void Hold(int card, std::uint64_t bytes) {
  Counted& counted = CountedOf(card);
  EnterGeneration(counted);
  const int error = fulldeck_simulated_card_hold(HandleOf(card), bytes);
  if (error == -ENOMEM) ThrowOutOfMemory(card, bytes);
  if (error != 0) ThrowLost(card);
  const std::uint64_t held = counted.held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  counted.allocations.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t peak = counted.peak.load(std::memory_order_relaxed);
  while (peak < held && !counted.peak.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
  }
}

void Release(int card, std::uint64_t bytes, std::uint32_t generation) noexcept {
  if (bytes == 0 || generation != ForkGeneration() || !IsOpen(card)) return;
  fulldeck_simulated_card_release(HandleOf(card), bytes);
  CountedOf(card).held.fetch_sub(bytes, std::memory_order_relaxed);
}

void DeleteBlock(void* context) {
  auto* block = static_cast<Block*>(context);
  Release(block->card, block->bytes, block->generation);
  delete block;
}

Block* BlockOf(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &DeleteBlock ? static_cast<Block*>(data.get_context()) : nullptr;
}

c10::Device DeviceOf(int card) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(card)};
}

// `bytes` are already counted as held.
c10::DataPtr DataOver(c10::intrusive_ptr<c10::StorageImpl> host, int card, std::uint64_t bytes) {
  void* address = host->mutable_data();
  auto* block = new Block{std::move(host), bytes, card, ForkGeneration()};
  return {address, block, &DeleteBlock, DeviceOf(card)};
}

class CardMemory final : public c10::DeviceAllocator {
 public:
  explicit CardMemory(int card) : card_(card) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    const int card = card_ < 0 ? CurrentCard() : card_;
    Hold(card, bytes);
    try {
      c10::Allocator* const host = c10::GetCPUAllocator();
      return DataOver(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            host->allocate(bytes), host, true),
                      card, bytes);
    } catch (...) {
      Release(card, bytes, ForkGeneration());
      throw;
    }
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}  // nothing is cached
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    CheckCard(device);
    const MemoryFigures figures = FiguresOf(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* all : {&stats.allocated_bytes[0], &stats.reserved_bytes[0], &stats.active_bytes[0]}) {
      all->current = static_cast<std::int64_t>(figures.held);
      all->peak = static_cast<std::int64_t>(figures.peak);
    }
    stats.allocation[0].allocated = static_cast<std::int64_t>(figures.allocations);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    CheckCard(device);
    CountedOf(device).allocations.store(0, std::memory_order_relaxed);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    CheckCard(device);
    ResetPeak(device);
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    CheckCard(device);
    const std::uint64_t total = BytesOfCard();
    const std::uint64_t held = BytesHeld(device);
    return {held < total ? total - held : 0, total};
  }

 private:
  int card_;
};

struct PinnedRanges {
  std::mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> ends;  // end addresses by begin address
};

PinnedRanges& Pinned() {
  static auto& ranges = *new PinnedRanges;
  return ranges;
}

struct PinnedBlock {
  c10::DataPtr data;
};

void DeletePinned(void* context) {
  auto* block = static_cast<PinnedBlock*>(context);
  {
    const std::lock_guard lock(Pinned().mutex);
    Pinned().ends.erase(reinterpret_cast<std::uintptr_t>(block->data.get()));
  }
  delete block;
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto* block = new PinnedBlock{c10::GetCPUAllocator()->allocate(bytes)};
    void* const address = block->data.get();
    if (address != nullptr) {
      const auto first = reinterpret_cast<std::uintptr_t>(address);
      const std::lock_guard lock(Pinned().mutex);
      Pinned().ends[first] = first + bytes;
    }
    return {address, block, &DeletePinned, c10::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

c10::DeviceAllocator& MemoryOf(int card) {
  static auto& all = *[] {
    auto* made = new std::array<CardMemory*, wire::kMaxSimulatedCards + 1>;
    for (std::size_t i = 0; i < made->size(); ++i) (*made)[i] = new CardMemory(static_cast<int>(i) - 1);
    return made;
  }();
  return *all[static_cast<std::size_t>(card < 0 ? 0 : card + 1)];
}

c10::Storage OnCard(c10::intrusive_ptr<c10::StorageImpl> host, int card) {
  const std::size_t bytes = host->nbytes();
  Hold(card, bytes);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, DataOver(std::move(host), card, bytes), &MemoryOf(card), true));
}

c10::intrusive_ptr<c10::StorageImpl> HostStorage(const c10::Storage& storage) {
  if (const Block* block = BlockOf(*storage.unsafeGetStorageImpl())) return block->host;
  auto* kept = new c10::Storage(storage);
  c10::DataPtr data(
      const_cast<void*>(storage.data()), kept, [](void* it) { delete static_cast<c10::Storage*>(it); }, c10::kCPU);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(data),
                                               nullptr, false);
}

void Follow(c10::StorageImpl& storage) {
  Block* const block = BlockOf(storage);
  if (block == nullptr) return;
  const std::size_t bytes = block->host->nbytes();
  void* const address = block->host->mutable_data();
  if (address != storage.data() || bytes != storage.nbytes()) {
    storage.set_data_ptr(c10::DataPtr()).release_context();
    storage.set_data_ptr_noswap({address, block, &DeleteBlock, DeviceOf(block->card)});
    storage.set_nbytes(bytes);
  }
  if (bytes == block->bytes) return;
  if (bytes > block->bytes) {
    Hold(block->card, bytes - block->bytes);
  } else {
    Release(block->card, block->bytes - bytes, block->generation);
  }
  block->bytes = bytes;
}

void Resize(c10::StorageImpl& storage, std::size_t bytes) {
  Block* const block = BlockOf(storage);
  TORCH_CHECK(block != nullptr && storage.resizable(),
              "This storage of a simulated card cannot be resized: its memory is somebody else's.");
  if (bytes > block->bytes) {
    Hold(block->card, bytes - block->bytes);
    block->bytes = bytes;
  }
  c10::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
  const std::size_t kept = std::min<std::size_t>(bytes, block->host->nbytes());
  if (kept > 0) std::memcpy(data.get(), block->host->data(), kept);
  block->host->set_data_ptr_noswap(std::move(data));
  block->host->set_nbytes(bytes);
  Follow(storage);
}

MemoryFigures FiguresOf(int card) {
  Counted& counted = CountedOf(card);
  EnterGeneration(counted);
  return {counted.held.load(std::memory_order_relaxed), counted.peak.load(std::memory_order_relaxed),
          counted.allocations.load(std::memory_order_relaxed)};
}

void ResetPeak(int card) {
  Counted& counted = CountedOf(card);
  counted.peak.store(counted.held.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

c10::Allocator& PinnedMemory() {
  static auto& memory = *new PinnedAllocator;
  return memory;
}

bool IsPinned(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(Pinned().mutex);
  auto range = Pinned().ends.upper_bound(at);
  if (range == Pinned().ends.begin()) return false;
  --range;
  return at < range->second;
}

}  // namespace fulldeck::simulator
